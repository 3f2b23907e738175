//! `x-amz-copy-source`: any text.

use forebay_s3::classify::parse_source;
use forebay_s3::uri::{decode_path, encode_path};

/// A source is what its path decodes to, and a printed one reads the same.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(object) = parse_source(text) else {
        return;
    };
    let path = text.split("?versionId=").next().unwrap_or_default();
    let path = decode_path(path).expect("it was read before");
    let named = format!("{}/{}", object.bucket, object.key);
    assert!(
        *path == named || path.strip_prefix('/') == Some(&named),
        "{path} is not {named}"
    );

    let (bucket, key) = (&object.bucket, encode_path(object.key.as_str()));
    let version = object.version.as_ref();
    let version = version.map(|id| format!("?versionId={}", encode_path(id.as_str())));
    let printed = format!("{bucket}/{key}{}", version.unwrap_or_default());
    assert_eq!(parse_source(&printed).as_ref(), Ok(&object), "{printed}");
    assert_eq!(parse_source(&format!("/{printed}")), Ok(object));
}
