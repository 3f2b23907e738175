//! `GetObjectAttributes`: what of an object is told without its bytes.

use forebay_s3::checksum::{Algorithm, Checksum};

use super::{
    bucket,
    requests::{attributes, put},
};
use crate::Store;

pub(super) async fn check(store: &dyn Store) {
    let b = bucket(store, "contract-attributes").await;
    let sum = Checksum::of(Algorithm::Sha1, b"hello").to_base64();
    let written = put(b, "k")
        .header(Algorithm::Sha1.header(), &sum)
        .body("hello")
        .expect(200, store)
        .await;
    let all = attributes(b, "k", "ETag,Checksum,ObjectParts,StorageClass,ObjectSize");
    let all = all.expect(200, store).await;
    assert_eq!(all.element("ETag"), written.etag().trim_matches('"'));
    assert_eq!(all.element("ChecksumSHA1"), sum);
    assert_eq!(all.element("ChecksumType"), "FULL_OBJECT");
    assert_eq!(all.element("StorageClass"), "STANDARD");
    assert_eq!(all.element("ObjectSize"), "5");
    assert_eq!(all.elements("ObjectParts"), [""; 0]);
    assert!(forebay_s3::time::parse_http_date(all.header("last-modified")).is_some());
    let one = attributes(b, "k", "ObjectSize").expect(200, store).await;
    assert_eq!(
        (one.element("ObjectSize"), one.element("ETag")),
        ("5".into(), String::new())
    );
    assert_eq!(
        attributes(b, "gone", "ETag").refusal(store).await,
        "NoSuchKey"
    );
    assert_eq!(
        attributes(b, "k", "Colour").refusal(store).await,
        "InvalidArgument"
    );
}
