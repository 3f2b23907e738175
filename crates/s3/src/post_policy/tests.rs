//! AWS's published form, forms cut at every byte, and what each fault is answered with.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::*;
use crate::code::Code;
use crate::sigv4::{ExpectedScope, Regions, SecretKey, SigningKey};
use crate::time::parse_rfc3339;

/// The policy of "Example: Browser-Based Upload using HTTP POST", byte for byte.
const POLICY: &str = concat!(
    "{ \"expiration\": \"2015-12-30T12:00:00.000Z\",\r\n",
    "  \"conditions\": [\r\n",
    "    {\"bucket\": \"sigv4examplebucket\"},\r\n",
    "    [\"starts-with\", \"$key\", \"user/user1/\"],\r\n",
    "    {\"acl\": \"public-read\"},\r\n",
    "    {\"success_action_redirect\": ",
    "\"http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html\"},\r\n",
    "    [\"starts-with\", \"$Content-Type\", \"image/\"],\r\n",
    "    {\"x-amz-meta-uuid\": \"14365123651274\"},\r\n",
    "    {\"x-amz-server-side-encryption\": \"AES256\"},\r\n",
    "    [\"starts-with\", \"$x-amz-meta-tag\", \"\"],\r\n\r\n",
    "    {\"x-amz-credential\": \"AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request\"},\r\n",
    "    {\"x-amz-algorithm\": \"AWS4-HMAC-SHA256\"},\r\n",
    "    {\"x-amz-date\": \"20151229T000000Z\" }\r\n  ]\r\n}",
);
const SIGNATURE: &str = "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e";
const REDIRECT: &str = "http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html";
const CREDENTIAL: &str = "AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request";
const EXPECTED: ExpectedScope<'_> = ExpectedScope {
    regions: Regions::OneOf(&["us-east-1"]),
    service: "s3",
};

fn example_fields() -> Vec<(&'static str, String)> {
    let fields = [
        ("key", "user/user1/${filename}"),
        ("acl", "public-read"),
        ("success_action_redirect", REDIRECT),
        ("Content-Type", "image/jpeg"),
        ("x-amz-meta-uuid", "14365123651274"),
        ("x-amz-server-side-encryption", "AES256"),
        ("X-Amz-Credential", CREDENTIAL),
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
        ("X-Amz-Date", "20151229T000000Z"),
        ("x-amz-meta-tag", ""),
        ("Policy", &STANDARD.encode(POLICY)),
        ("X-Amz-Signature", SIGNATURE),
    ];
    fields
        .map(|(name, value)| (name, value.to_owned()))
        .to_vec()
}

fn body(fields: &[(&str, String)], file: &str) -> String {
    let field = |(name, value): &(&str, String)| {
        format!("--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let fields: String = fields.iter().map(field).collect();
    format!(
        "{fields}--xyz\r\nContent-Disposition: form-data; name=\"file\"; \
         filename=\"C:\\dir\\photo.jpg\"\r\nContent-Type: image/png\r\n\r\n{file}\r\n--xyz\r\n\
         Content-Disposition: form-data; name=\"submit\"\r\n\r\nUpload\r\n--xyz--\r\n"
    )
}

const CONTENT_TYPE: &str = "multipart/form-data; charset=utf-8; boundary=\"xyz\"";

fn read(body: &str, piece_bytes: usize) -> Result<(FormFields, Vec<u8>), PostError> {
    let mut reader = FormReader::new(CONTENT_TYPE)?;
    let (mut found, mut file) = (None, Vec::new());
    for piece in body.as_bytes().chunks(piece_bytes) {
        reader.push(Bytes::copy_from_slice(piece));
        loop {
            match reader.step()? {
                Step::NeedMore => break,
                Step::Fields(fields) => assert!(found.replace(fields).is_none()),
                Step::File(bytes) => file.extend_from_slice(&bytes),
                Step::End => return Ok((found.expect("fields come first"), file)),
            }
        }
    }
    Err(PostError::Malformed("cut"))
}

fn fields(pairs: &[(&'static str, &str)]) -> FormFields {
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect();
    read(&body(&pairs, "x"), 4096).unwrap().0
}

fn policy(conditions: &str) -> Result<PostPolicy, PostError> {
    parse(&format!(
        "{{\"expiration\":\"2020-01-01T00:00:00Z\",\"conditions\":{conditions}}}"
    ))
}

fn parse(json: &str) -> Result<PostPolicy, PostError> {
    PostPolicy::parse(&STANDARD.encode(json))
}

#[test]
fn the_published_form_is_read_verified_and_allowed_in_pieces_of_any_size() {
    let file = "\r\n--xy not yet \r\n\r\r\n--xyY";
    for piece_bytes in [1, 2, 7, 64, 5000] {
        let (fields, bytes) = read(&body(&example_fields(), file), piece_bytes).unwrap();
        assert_eq!(bytes, file.as_bytes());
        assert_eq!(fields.key().unwrap(), "user/user1/photo.jpg");
        assert_eq!(
            fields.success_action(),
            SuccessAction::Redirect(REDIRECT.to_owned())
        );
        let signature = fields.signature().unwrap().unwrap();
        signature.check(&EXPECTED).unwrap();
        let secret = SecretKey::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        let derive = |region| SigningKey::derive(&secret, signature.date_stamp(), region, "s3");
        signature.verify(&derive("us-east-1")).unwrap();
        let error = signature.verify(&derive("eu-west-1")).unwrap_err();
        assert_eq!(error.code(), "SignatureDoesNotMatch");
        let policy = PostPolicy::parse(signature.policy()).unwrap();
        let now = parse_rfc3339("2015-12-30T12:00:00Z").unwrap() / 1000;
        policy.check(&fields, "sigv4examplebucket", now).unwrap();
        let late = policy
            .check(&fields, "sigv4examplebucket", now + 1)
            .unwrap_err();
        assert_eq!(
            late.to_string(),
            "Invalid according to Policy: Policy expired."
        );
        let elsewhere = policy.check(&fields, "other", now).unwrap_err();
        assert_eq!(
            elsewhere.to_string(),
            "Invalid according to Policy: Policy Condition failed: \
             [\"eq\", \"$bucket\", \"sigv4examplebucket\"]"
        );
        assert_eq!(elsewhere.code(), "AccessDenied");
    }
}

#[test]
fn a_form_cut_anywhere_before_its_files_end_is_not_complete() {
    let body = body(&[("key", "k".to_owned())], "content");
    let end = body.find("content").unwrap() + "content\r\n--xyz".len();
    for len in 0..end {
        assert_eq!(
            read(&body[..len], 10),
            Err(PostError::Malformed("cut")),
            "{len}"
        );
    }
    assert!(read(&body[..end], 10).is_ok());
}

#[test]
fn file_bytes_are_given_on_without_a_copy() {
    let whole = Bytes::from(body(&[("key", "k".to_owned())], "content"));
    let at = whole
        .windows(7)
        .position(|bytes| bytes == b"content")
        .unwrap();
    let mut reader = FormReader::new(CONTENT_TYPE).unwrap();
    reader.push(whole.slice(..at));
    assert!(matches!(reader.step(), Ok(Step::Fields(_))));
    reader.push(whole.slice(at..));
    let Ok(Step::File(bytes)) = reader.step() else {
        panic!("the file follows")
    };
    assert_eq!(bytes.as_ptr(), whole[at..].as_ptr());
    assert_eq!(reader.step(), Ok(Step::End));
    assert!(reader.is_complete());
}

#[test]
fn bodies_that_are_not_forms_are_refused() {
    let part = |head: &str| format!("--xyz\r\n{head}\r\n\r\nvalue\r\n--xyz--\r\n");
    let named = |name: &str| part(&format!("Content-Disposition: form-data; name=\"{name}\""));
    let twice = named("key").replace("--xyz--", &named("KEY"));
    let large = named("key").replace("value", &"x".repeat(FIELDS_BYTES_MAX));
    for (body, code) in [
        (
            part("Content-Disposition: form-data"),
            "MalformedPOSTRequest",
        ),
        (
            part("Content-Disposition: attachment; name=\"key\""),
            "MalformedPOSTRequest",
        ),
        (part("Content-Type: text/plain"), "MalformedPOSTRequest"),
        (named(""), "MalformedPOSTRequest"),
        (twice, "MalformedPOSTRequest"),
        ("--xyzw\r\n\r\n".to_owned(), "MalformedPOSTRequest"),
        (named("key"), "InvalidArgument"),
        (large.clone(), "MaxPostPreDataLengthExceededError"),
        (
            "y".repeat(FIELDS_BYTES_MAX + 1),
            "MaxPostPreDataLengthExceededError",
        ),
    ] {
        assert!(Code::parse(code).is_some(), "{code}");
        assert_eq!(read(&body, 9999).unwrap_err().code(), code, "{body:.80}");
        assert_eq!(read(&body, 3).unwrap_err().code(), code, "{body:.80}");
    }
    let open = |content_type: &str| {
        FormReader::new(content_type)
            .err()
            .map(|error| error.code())
    };
    assert_eq!(open("text/html"), Some("PreconditionFailed"));
    assert_eq!(open("multipart/form-data"), Some("MalformedPOSTRequest"));
    let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
    assert_eq!(open(&long), Some("MalformedPOSTRequest"));
}

#[test]
fn what_clients_do_with_names_is_understood() {
    // Every field with a filename, names in any case, quotes escaped.
    let body = concat!(
        "preamble\r\n--xyz  \r\n",
        "CONTENT-DISPOSITION: Form-Data; name=kEy; filename=key\r\n\r\na${filename}\r\n--xyz\r\n",
        "content-disposition: form-data; filename=\"a \\\"b\\\" /c;d\"; name=\"file\"\r\n\r\n",
        "\r\n--xyz--",
    );
    let (fields, file) = read(body, 4).unwrap();
    assert_eq!(fields.key().unwrap(), "ac;d");
    assert!(file.is_empty());
    // Without a filename there is nothing to fill in.
    let nameless = concat!(
        "--xyz\r\nContent-Disposition: form-data; name=key\r\n\r\n${filename}\r\n",
        "--xyz\r\nContent-Disposition: form-data; name=file\r\n\r\nx\r\n--xyz--",
    );
    assert_eq!(read(nameless, 4).unwrap().0.key().unwrap(), "${filename}");
    let tags = fields_with("x-amz-meta-tag", &["a", "b"]);
    assert_eq!(tags.get("x-amz-meta-tag"), Some("a,b"));
}

fn fields_with(name: &'static str, values: &[&str]) -> FormFields {
    fields(
        &values
            .iter()
            .map(|value| (name, *value))
            .collect::<Vec<_>>(),
    )
}

#[test]
fn conditions_hold_or_fail_as_with_s3() {
    let bucket = "{\"bucket\":\"b\"}";
    for (condition, value, holds) in [
        ("[\"eq\",\"$acl\",\"private\"]", Some("private"), true),
        ("[\"eq\",\"$acl\",\"private\"]", Some("Private"), false),
        ("[\"EQ\",\"$aCL\",\"private\"]", Some("private"), true),
        ("[\"eq\",\"acl\",\"private\"]", Some("private"), false),
        ("{\"ACL\":\"private\"}", Some("private"), true),
        ("{\"acl\":\"\\$\\v\"}", Some("$\u{b}"), true),
        ("{\"acl\":\"\\\\$\"}", Some("\\$"), true),
        ("[\"starts-with\",\"$acl\",\"pri\"]", Some("private"), true),
        ("[\"starts-with\",\"$acl\",\"pub\"]", Some("private"), false),
        ("[\"starts-with\",\"$acl\",\"\"]", Some(""), true),
        ("[\"starts-with\",\"$acl\",\"\"]", None, false),
        ("[\"content-length-range\",\"test\",\"10\"]", None, false),
    ] {
        let conditions = format!("[{bucket},[\"starts-with\",\"$key\",\"\"],{condition}]");
        let pairs: Vec<_> = [("key", "k")]
            .into_iter()
            .chain(value.map(|value| ("acl", value)))
            .collect();
        let checked = policy(&conditions).unwrap().check(&fields(&pairs), "b", 0);
        assert_eq!(checked.is_ok(), holds, "{condition} {value:?}: {checked:?}");
    }
    for (types, holds) in [
        ("image/jpg,image/png", true),
        ("image/jpg,text/plain", false),
    ] {
        let conditions =
            format!("[{bucket},{{\"key\":\"k\"}},[\"starts-with\",\"$Content-Type\",\"image/\"]]");
        let fields = fields(&[("key", "k"), ("Content-Type", types)]);
        assert_eq!(
            policy(&conditions).unwrap().check(&fields, "b", 0).is_ok(),
            holds
        );
    }
}

#[test]
fn every_field_needs_a_condition_and_so_does_the_bucket() {
    let form = fields(&[
        ("key", "k"),
        ("x-custom", "1"),
        ("x-ignore-me", "1"),
        ("tagging", ""),
    ]);
    let refused = |conditions: &str| {
        policy(conditions)
            .unwrap()
            .check(&form, "b", 0)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused("[{\"key\":\"k\"}]"),
        "Invalid according to Policy: Extra input fields: x-custom, tagging, bucket"
    );
    let all = "[{\"key\":\"k\"},{\"bucket\":\"b\"},{\"x-custom\":\"1\"},{\"tagging\":\"\"}]";
    assert!(policy(all).unwrap().check(&form, "b", 0).is_ok());
    let keyless = policy(all).unwrap().check(&fields(&[("acl", "x")]), "b", 0);
    assert_eq!(keyless, Err(PostError::FieldMissing("key")));
}

#[test]
fn the_files_length_is_judged_with_its_limits() {
    let policy = policy("[[\"content-length-range\",5,\"10\"]]").unwrap();
    assert!(policy.check_length(5).is_ok() && policy.check_length(10).is_ok());
    assert!(policy.check_length_so_far(0).is_ok());
    let small = policy.check_length(4).unwrap_err();
    assert_eq!(small.code(), "EntityTooSmall");
    assert_eq!(small.extras()[1], ("MinSizeAllowed", "5".to_owned()));
    let large = policy.check_length_so_far(11).unwrap_err();
    assert_eq!(
        (large.code(), &large),
        ("EntityTooLarge", &policy.check_length(11).unwrap_err())
    );
}

#[test]
fn malformed_policies_are_named() {
    for (json, fault) in [
        ("", "Invalid JSON."),
        ("[]", "Invalid JSON."),
        ("{\"conditions\":[]}", "Policy missing expiration."),
        (
            "{\"EXPIRATION\":\"2020-01-01T00:00:00Z\"}",
            "Policy missing expiration.",
        ),
        (
            "{\"expiration\":\"soon\",\"conditions\":[]}",
            "Invalid 'expiration' value: 'soon'",
        ),
        (
            "{\"expiration\":\"2020-01-01T00:00:00Z\"}",
            "Policy missing conditions.",
        ),
    ] {
        let error = parse(json).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("Invalid Policy: {fault}"),
            "{json}"
        );
        assert_eq!(error.code(), "InvalidPolicyDocument");
    }
    for conditions in [
        "{}",
        "[1]",
        "[[]]",
        "[{}]",
        "[{\"a\":\"1\",\"b\":\"2\"}]",
        "[{\"a\":1}]",
        "[[\"like\",\"$a\",\"b\"]]",
        "[[\"eq\",\"$a\"]]",
        "[[\"eq\",\"$a\",1]]",
        "[[\"content-length-range\",0]]",
        "[[\"content-length-range\",-1,0]]",
    ] {
        assert_eq!(
            policy(conditions).unwrap_err().code(),
            "InvalidPolicyDocument",
            "{conditions}"
        );
    }
    assert!(PostPolicy::parse("%%%").is_err());
}

#[test]
fn signatures_are_missing_foreign_or_of_another_version() {
    let signed = |without: &str| {
        let pairs: Vec<_> = example_fields()
            .into_iter()
            .filter(|(name, _)| !name.eq_ignore_ascii_case(without))
            .collect();
        read(&body(&pairs, "x"), 4096).unwrap().0
    };
    for name in [
        "X-Amz-Algorithm",
        "X-Amz-Credential",
        "X-Amz-Date",
        "X-Amz-Signature",
        "Policy",
    ] {
        let error = signed(name).signature().unwrap_err();
        assert_eq!(error, PostError::FieldMissing(name));
        assert_eq!(error.extras()[0].1, name);
    }
    assert!(
        fields(&[("key", "k"), ("policy", "e30=")])
            .signature()
            .unwrap()
            .is_none()
    );
    let v2 = fields(&[
        ("AWSAccessKeyId", "k"),
        ("policy", "e30="),
        ("signature", "s"),
    ]);
    assert_eq!(v2.signature().unwrap_err().code(), "InvalidRequest");
    let elsewhere = ExpectedScope {
        regions: Regions::OneOf(&["eu-west-1"]),
        service: "s3",
    };
    let fields = signed("none");
    let error = fields
        .signature()
        .unwrap()
        .unwrap()
        .check(&elsewhere)
        .unwrap_err();
    assert_eq!(error.code(), "InvalidArgument");
    assert_eq!(
        error.to_string(),
        "the region 'us-east-1' is wrong; expecting 'eu-west-1'"
    );
}

#[test]
fn the_answer_is_what_the_form_asks_for() {
    let action = |name, value| fields(&[("key", "k"), (name, value)]).success_action();
    assert_eq!(action("success_action_status", "200"), SuccessAction::Ok);
    assert_eq!(
        action("success_action_status", "201"),
        SuccessAction::Created
    );
    assert_eq!(
        action("success_action_status", "404"),
        SuccessAction::NoContent
    );
    assert_eq!(action("redirect", "/relative"), SuccessAction::NoContent);
    assert_eq!(
        action("redirect", "https://a/b"),
        SuccessAction::Redirect("https://a/b".into())
    );
}
