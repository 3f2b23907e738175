//! Bodies of browser uploads: a byte for the pieces, a line with the content type, the body.

use forebay_s3::post_policy::{FormFields, FormReader, PostError, PostPolicy, Step};
use forebay_s3::sigv4::{ExpectedScope, SecretKey, SigningKey};
use http::HeaderValue;

use crate::input::{Input, pieces};

/// A form reads the same however it arrives, and printed anew; its signature is not believed.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let seed = input.byte();
    let content_type = input.text_line();
    // What no header can hold never comes this far.
    if HeaderValue::from_str(content_type).is_err() {
        return;
    }
    let Ok(whole) = read(content_type, input.0, 0) else {
        read(content_type, input.0, seed.max(1)).expect_err("it was refused as a whole");
        return;
    };
    assert_eq!(
        read(content_type, input.0, seed.max(1)).as_ref(),
        Ok(&whole)
    );
    let Some(fields) = &whole.fields else {
        return;
    };
    check_fields(fields);
    let printed = print(fields, &whole.file);
    let again = read(
        "multipart/form-data; boundary=a-boundary-of-our-own",
        &printed,
        seed,
    );
    // A file or a value may happen to hold our boundary.
    let holds_boundary = data.windows(10).any(|window| window == b"a-boundary");
    if !holds_boundary {
        let whole = Form {
            is_complete: true,
            ..whole
        };
        assert_eq!(again, Ok(whole));
    }
}

/// What was read of a form.
#[derive(Debug, PartialEq)]
pub(crate) struct Form {
    pub(crate) fields: Option<FormFields>,
    pub(crate) file: Vec<u8>,
    pub(crate) is_complete: bool,
}

/// Reads a body in pieces.
pub(crate) fn read(content_type: &str, body: &[u8], seed: u8) -> Result<Form, PostError> {
    let mut reader = FormReader::new(content_type)?;
    let (mut fields, mut file) = (None, Vec::new());
    for piece in pieces(body, seed) {
        reader.push(piece);
        loop {
            match reader.step()? {
                Step::NeedMore | Step::End => break,
                Step::Fields(read) => {
                    assert!(fields.is_none(), "fields come once");
                    fields = Some(read);
                }
                Step::File(bytes) => {
                    assert!(fields.is_some() && !bytes.is_empty());
                    file.extend_from_slice(&bytes);
                }
            }
        }
        assert!(reader.unread_bytes() <= reader.closing_bytes());
    }
    Ok(Form {
        fields,
        file,
        is_complete: reader.is_complete(),
    })
}

fn check_fields(fields: &FormFields) {
    for (name, value) in fields.iter() {
        assert_eq!(name, name.to_ascii_lowercase());
        assert_eq!(fields.get(name), Some(value), "a name comes once");
    }
    assert_eq!(fields.key().is_ok(), fields.get("key").is_some());
    let _ = fields.success_action();
    if let Ok(Some(signature)) = fields.signature()
        && signature.check(&ExpectedScope::ANY_REGION).is_ok()
    {
        let secret = SecretKey::new("a secret that no input holds");
        let (stamp, region) = (signature.date_stamp(), signature.region());
        let key = SigningKey::derive(&secret, stamp, region, signature.service());
        signature
            .verify(&key)
            .expect_err("the key's holder did not sign this");
    }
    if let Some(Ok(policy)) = fields.get("policy").map(PostPolicy::parse) {
        let _ = policy.check(fields, "bucket", 1_369_353_600);
    }
}

/// Writes a form whose boundary is `a-boundary-of-our-own`.
pub(crate) fn print(fields: &FormFields, file: &[u8]) -> Vec<u8> {
    let named: Vec<_> = fields.iter().collect();
    print_named(&named, fields.filename(), file)
}

/// Writes a form of such fields.
pub(crate) fn print_named(fields: &[(&str, &str)], filename: Option<&str>, file: &[u8]) -> Vec<u8> {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut body = Vec::new();
    for (name, value) in fields {
        let head = format!(
            "--a-boundary-of-our-own\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n",
            quoted(name)
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(value.as_bytes());
        body.extend_from_slice(b"\r\n");
    }
    let filename = filename.map(|name| format!("; filename=\"{}\"", quoted(name)));
    let head = format!(
        "--a-boundary-of-our-own\r\nContent-Disposition: form-data; name=\"file\"{}\r\n\r\n",
        filename.unwrap_or_default()
    );
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(file);
    body.extend_from_slice(b"\r\n--a-boundary-of-our-own--\r\n");
    body
}
