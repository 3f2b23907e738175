//! Which operation a request names, by tables and by properties.

use proptest::prelude::*;

use super::*;
use crate::operation::Effect;

/// `METHOD /path?query` with headers, in path style.
fn request(line: &str, headers: &[(&'static str, &str)]) -> Result<Operation, ClassifyError> {
    at_host(line, "", headers)
}

fn at_host(
    line: &str,
    host: &str,
    headers: &[(&'static str, &str)],
) -> Result<Operation, ClassifyError> {
    let (method, target) = line.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    let method = method.parse().unwrap();
    let mut domains = ["example.com".to_owned(), "s3.example.com".to_owned()];
    let head = Head {
        method: &method,
        host,
        path,
        query,
        headers: &map,
    };
    let operation = classify(&head, &domains);
    domains.reverse();
    assert_eq!(
        operation,
        classify(&head, &domains),
        "the order of domains counts"
    );
    operation
}

fn name(line: &str) -> OperationName {
    request(line, &[])
        .unwrap_or_else(|error| panic!("{line}: {error}"))
        .name()
}

fn code(line: &str) -> Code {
    match request(line, &[]) {
        Ok(operation) => panic!("{line} is {operation:?}"),
        Err(error) => error.code,
    }
}

/// Goal: every operation of the table is found by the request that the table says names it.
/// Method: build that request from the row; headers decide only where the row says so.
#[test]
fn every_row_of_the_table_is_found() {
    let mut found = 0;
    for row in ROWS.iter().filter(|row| row.selectors != 0) {
        let path = match row.scope {
            Scope::Service => "/",
            Scope::Bucket => "/bucket",
            Scope::Object => "/bucket/key",
            Scope::Any => unreachable!("no such row has a query"),
        };
        let query: Vec<_> = row
            .query
            .iter()
            .map(|name| match *name {
                "list-type" => "list-type=2".to_owned(),
                "partNumber" => "partNumber=1".to_owned(),
                "uploadId" => "uploadId=u".to_owned(),
                name => name.to_owned(),
            })
            .collect();
        let method = format!("{:?}", row.verb).to_uppercase();
        let line = format!("{method} {path}?{}&x-id=Any", query.join("&"));
        let headers = match row.name {
            OperationName::UploadPartCopy => &[(COPY_SOURCE, "other/key")][..],
            OperationName::RenameObject => &[(RENAME_SOURCE, "bucket/old")],
            _ => &[],
        };
        let operation = request(&line, headers).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(operation.name(), row.name, "{line}");
        found += 1;
    }
    assert!(found > 95, "{found}");
}

#[test]
fn plain_requests_are_named_by_method_and_target() {
    use OperationName as N;
    for (line, expected) in [
        ("GET /", N::ListBuckets),
        ("GET /bucket", N::ListObjects),
        ("GET /bucket/", N::ListObjects),
        ("GET /bucket/?list-type=1", N::ListObjects),
        ("HEAD /bucket", N::HeadBucket),
        ("PUT /bucket", N::CreateBucket),
        ("DELETE /bucket", N::DeleteBucket),
        ("GET /bucket/key", N::GetObject),
        ("HEAD /bucket/key", N::HeadObject),
        ("PUT /bucket/key", N::PutObject),
        ("DELETE /bucket/key", N::DeleteObject),
        ("OPTIONS /bucket/key?acl", N::Preflight),
        ("OPTIONS *", N::Preflight),
        (
            "GET /bucket?analytics&id=1",
            N::GetBucketAnalyticsConfiguration,
        ),
        (
            "GET /bucket?analytics",
            N::ListBucketAnalyticsConfigurations,
        ),
        (
            "PUT /bucket?analytics&id=1",
            N::PutBucketAnalyticsConfiguration,
        ),
        (
            "GET /bucket/key?uploadId=u&part-number-marker=3",
            N::ListParts,
        ),
        ("GET /bucket/key?%61cl", N::GetObjectAcl),
        (
            "POST /bucket/key?select&select-type=2",
            N::SelectObjectContent,
        ),
    ] {
        assert_eq!(name(line), expected, "{line}");
    }
    let form = [("content-type", "Multipart/Form-Data; boundary=x")];
    assert_eq!(
        request("POST /bucket", &form).unwrap().name(),
        N::PostObject
    );
    let route = [("x-amz-request-route", "r"), ("x-amz-request-token", "t")];
    let written = request("POST /WriteGetObjectResponse", &route).unwrap();
    assert_eq!(
        written,
        Operation::Other(N::WriteGetObjectResponse, Target::Service)
    );
}

#[test]
fn what_the_table_does_not_know_passes_with_its_effect() {
    for (line, effect) in [
        ("GET /bucket/key?future-thing", Effect::Read),
        ("GET /bucket/key?future-thing=", Effect::Read),
        ("GET /bucket/key?future&acl", Effect::Read),
        ("HEAD /bucket/key?acl", Effect::Read),
        ("HEAD /bucket/key?uploadId=u", Effect::Read),
        ("PUT /bucket/key?policy", Effect::Write),
        ("DELETE /bucket?future", Effect::Write),
        ("POST /bucket?future", Effect::Write),
        ("GET /?future", Effect::Read),
    ] {
        let expected = match effect {
            Effect::Read => OperationName::UnknownRead,
            Effect::Write => OperationName::UnknownWrite,
        };
        assert_eq!(name(line), expected, "{line}");
        assert_eq!(expected.effect(), effect);
    }
    for line in [
        "GET /bucket/key?v2",
        "GET /bucket/key?v=abc",
        "GET /bucket/key?1700000000",
        "GET /bucket/key?x-own",
        "GET /bucket/key?X-Amz-Security-Token=",
        "GET /bucket/key?AWSAccessKeyId=a&Signature=&Expires=1",
        "GET /bucket/key?response-content-type=&",
    ] {
        assert_eq!(name(line), OperationName::GetObject, "{line}");
    }
}

#[test]
fn keys_are_what_the_path_says_and_nothing_is_normalised() {
    for (path, key) in [
        ("/bucket/a", "a"),
        ("/bucket//a", "/a"),
        ("/bucket/a//b/", "a//b/"),
        ("/bucket/..", ".."),
        ("/bucket/../other/x", "../other/x"),
        ("/bucket/%2e%2E/a", "../a"),
        ("/bucket/a%2Fb", "a/b"),
        ("/bucket/%00", "\0"),
        ("/bucket/a+b%20c%2B", "a+b c+"),
        ("/bucket/%C3%A9", "é"),
        ("/bucket/e%CC%81", "e\u{301}"),
        ("/%62ucket/a", "a"),
    ] {
        let operation = request(&format!("GET {path}"), &[]).unwrap();
        assert_eq!(operation.bucket().unwrap().as_str(), "bucket", "{path}");
        assert_eq!(operation.key().unwrap().as_str(), key, "{path}");
    }
    let longest = format!("GET /bucket/{}", "%61".repeat(1024));
    assert_eq!(
        request(&longest, &[])
            .unwrap()
            .key()
            .unwrap()
            .as_str()
            .len(),
        1024
    );
}

#[test]
fn a_bucket_may_be_part_of_the_host() {
    for (host, path, bucket, key) in [
        ("bucket.s3.example.com", "/key", Some("bucket"), Some("key")),
        (
            "bucket.s3.example.com:9000",
            "//key",
            Some("bucket"),
            Some("/key"),
        ),
        ("my.bucket.s3.example.com.", "/", Some("my.bucket"), None),
        ("BUCKET.S3.Example.com", "/key", Some("bucket"), Some("key")),
        ("other.example.com", "/key", Some("other"), Some("key")),
        // The longest domain that fits decides.
        ("s3.example.com", "/bucket/key", Some("bucket"), Some("key")),
        ("example.com:80", "/bucket", Some("bucket"), None),
        ("notexample.com", "/bucket/key", Some("bucket"), Some("key")),
        (".example.com", "/bucket/key", Some("bucket"), Some("key")),
        ("127.0.0.1:9000", "/bucket/key", Some("bucket"), Some("key")),
        ("[::1]:9000", "/bucket/key", Some("bucket"), Some("key")),
        ("é.example.co", "/bucket/key", Some("bucket"), Some("key")),
        ("s3.example.com", "/", None, None),
    ] {
        let operation = at_host(&format!("GET {path}"), host, &[]).unwrap();
        assert_eq!(
            operation.bucket().map(BucketName::as_str),
            bucket,
            "{host}{path}"
        );
        assert_eq!(operation.key().map(ObjectKey::as_str), key, "{host}{path}");
    }
    let error = at_host("GET /key", "a_.x.s3.example.com:1", &[]).map(|o| o.bucket().cloned());
    assert!(error.is_ok(), "an old name is still addressed");
    let error = at_host("GET /key", "a.s3.example.com", &[]).unwrap_err();
    assert_eq!(error.code, Code::InvalidBucketName);
}

#[test]
fn bad_requests_get_the_code_that_s3_gives() {
    for (line, expected) in [
        ("GET //bucket", Code::InvalidBucketName),
        ("GET /..", Code::InvalidBucketName),
        ("GET /a%2Fb", Code::InvalidBucketName),
        ("GET /ab/key", Code::InvalidBucketName),
        ("GET bucket/key", Code::InvalidURI),
        ("GET /bucket/%ff", Code::InvalidURI),
        ("GET /bucket/100%", Code::InvalidURI),
        (
            &format!("GET /bucket/{}", "k".repeat(1025)),
            Code::KeyTooLongError,
        ),
        ("PATCH /bucket/key", Code::MethodNotAllowed),
        ("POST /bucket/key", Code::MethodNotAllowed),
        ("DELETE /", Code::MethodNotAllowed),
        ("HEAD /", Code::MethodNotAllowed),
        ("POST /bucket", Code::PreconditionFailed),
        ("GET /bucket/key?acl&tagging", Code::InvalidArgument),
        ("GET /bucket?prefix=a&prefix=b", Code::InvalidArgument),
        (
            "GET /bucket/key?versionId=a&versionId=b",
            Code::InvalidArgument,
        ),
        ("GET /bucket?list-type=3", Code::InvalidArgument),
        ("GET /bucket/key?versionId=", Code::InvalidArgument),
        ("PUT /bucket/key?versionId=v", Code::InvalidArgument),
        ("GET /bucket/key?partNumber=0", Code::InvalidArgument),
        ("GET /bucket/key?partNumber=10001", Code::InvalidArgument),
        ("GET /bucket/key?partNumber=%2B1", Code::InvalidArgument),
        ("PUT /bucket/key?partNumber=1", Code::InvalidArgument),
        ("PUT /bucket/key?uploadId=u", Code::InvalidArgument),
        (
            "PUT /bucket/key?uploadId=u&partNumber=0",
            Code::InvalidArgument,
        ),
        ("PUT /bucket/key?uploadId=&partNumber=1", Code::NoSuchUpload),
        ("DELETE /bucket/key?uploadId=", Code::NoSuchUpload),
        ("PUT /bucket/key?renameObject", Code::InvalidArgument),
    ] {
        assert_eq!(code(line), expected, "{line:.60}");
    }
}

#[test]
fn typed_fields_are_filled_from_query_and_headers() {
    let range = [("range", "bytes=1-2")];
    let operation = request("GET /bucket/key?versionId=v%2F1", &range).unwrap();
    let Operation::GetObject(read) = operation else {
        panic!("{operation:?}")
    };
    assert_eq!(read.object.version.unwrap().as_str(), "v/1");
    assert_eq!(read.range, RangeHeader::parse("bytes=1-2"));

    let Operation::HeadObject(read) = request("HEAD /bucket/key?partNumber=10000", &[]).unwrap()
    else {
        panic!("no HeadObject")
    };
    assert_eq!((read.part_number, read.range), (Some(10_000), None));
    let both = request("GET /bucket/key?partNumber=1", &range).unwrap_err();
    assert_eq!(both.code, Code::InvalidRequest);
    let two = [("range", "bytes=1-2"), ("range", "bytes=3-4")];
    let Operation::GetObject(read) = request("GET /bucket/key", &two).unwrap() else {
        panic!("no GetObject")
    };
    assert_eq!(read.range, None);

    let operation = request("GET /bucket?list-type=2&prefix=a%2Fb+c", &[]).unwrap();
    let Operation::ListObjectsV2(listing) = operation else {
        panic!("{operation:?}")
    };
    assert_eq!(listing.prefix, "a/b c");

    let operation = request("PUT /bucket/key?partNumber=7&uploadId=u%3D", &[]).unwrap();
    let Operation::UploadPart(part) = operation else {
        panic!("{operation:?}")
    };
    assert_eq!(
        (part.part_number, part.upload.upload_id.as_str()),
        (7, "u=")
    );
}

#[test]
fn copy_sources_are_read_in_all_their_spellings() {
    for (text, key, version) in [
        ("source/key", "key", None),
        ("/source/key", "key", None),
        ("source/a%2Fb%3F+c", "a/b?+c", None),
        ("%2Fsource%2Fkey", "key", None),
        ("source//a/../b", "/a/../b", None),
        ("/source/key?versionId=v%3D1", "key", Some("v=1")),
        ("source/a?b", "a?b", None),
    ] {
        let source = parse_source(text).unwrap();
        assert_eq!(source.bucket.as_str(), "source", "{text}");
        assert_eq!(source.key.as_str(), key, "{text}");
        assert_eq!(
            source.version.as_ref().map(VersionId::as_str),
            version,
            "{text}"
        );
        let copied = request("PUT /bucket/to", &[(COPY_SOURCE, text)]).unwrap();
        assert!(matches!(copied, Operation::CopyObject(copy) if copy.source == source));
    }
    for (text, expected) in [
        ("", Code::InvalidArgument),
        ("/", Code::InvalidArgument),
        ("source", Code::InvalidArgument),
        ("source/", Code::InvalidArgument),
        ("source/key?versionId=", Code::InvalidArgument),
        ("a/key", Code::InvalidBucketName),
        ("source/%zz", Code::InvalidURI),
        (
            "arn:aws:s3:us-west-2:1:accesspoint/a/object/k",
            Code::NotImplemented,
        ),
    ] {
        assert_eq!(parse_source(text).unwrap_err().code, expected, "{text}");
        // Nor may it hide behind a sub-resource that the origin might not know.
        for line in ["PUT /bucket/key", "PUT /bucket/key?future"] {
            let refused = request(line, &[(COPY_SOURCE, text)]).unwrap_err();
            assert_eq!(refused.code, expected, "{line} from {text}");
        }
    }
    let two = [(COPY_SOURCE, "source/a"), (COPY_SOURCE, "source/b")];
    assert_eq!(
        request("PUT /bucket/key", &two).unwrap_err().code,
        Code::InvalidArgument
    );
    let elsewhere = [(RENAME_SOURCE, "other/key")];
    assert!(request("PUT /bucket/key?renameObject", &elsewhere).is_err());
}

proptest! {
    #[test]
    fn any_request_is_named_or_refused_without_a_panic(
        method in "GET|HEAD|PUT|POST|DELETE|OPTIONS|PATCH",
        host in "\\PC{0,20}|[a-z.]{0,8}\\.s3\\.example\\.com(:[0-9]{0,4})?",
        path in "/?[a-c%/0-9éF.]{0,20}",
        query in "(acl|uploads|uploadId|partNumber|versionId|list-type|[a-z%&=é]{0,5}|[&=]){0,6}",
        source in "[ -~]{0,20}",
    ) {
        let _ = at_host(&format!("{method} {path}?{query}"), &host, &[(COPY_SOURCE, &source)]);
    }

    #[test]
    fn an_encoded_key_is_classified_as_itself(key in "\\PC{1,60}") {
        let line = format!("GET /bucket/{}", uri::encode_path(&key));
        let operation = request(&line, &[]).unwrap();
        prop_assert_eq!(operation.key().unwrap().as_str(), key);
    }
}
