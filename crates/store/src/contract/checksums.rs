//! Checksums: kept, and told to whoever asks.

use forebay_s3::checksum::{Algorithm, Checksum};

use super::{
    bodies, bucket,
    requests::{copy, get, head, list_v2, put},
};
use crate::Store;

pub(super) async fn check(store: &dyn Store) {
    declared_checksums_come_back_when_asked_for(store).await;
    a_checksum_in_a_trailer_is_kept(store).await;
    a_named_algorithm_is_computed(store).await;
}

async fn declared_checksums_come_back_when_asked_for(store: &dyn Store) {
    let b = bucket(store, "contract-checksums").await;
    for algorithm in Algorithm::ALL {
        let sum = Checksum::of(algorithm, b"hello").to_base64();
        let written = put(b, "k")
            .header(algorithm.header(), &sum)
            .body("hello")
            .expect(200, store)
            .await;
        assert_eq!(written.header(algorithm.header()), sum);
        // S3 does not look at the case of the mode.
        for mode in ["ENABLED", "enabled", "Enabled"] {
            for request in [get(b, "k"), head(b, "k")] {
                let read = request
                    .header("x-amz-checksum-mode", mode)
                    .expect(200, store)
                    .await;
                assert_eq!(read.header(algorithm.header()), sum, "{algorithm} {mode}");
                assert_eq!(read.header("x-amz-checksum-type"), "FULL_OBJECT");
            }
        }
        let silent = get(b, "k").expect(200, store).await;
        assert_eq!(silent.header(algorithm.header()), "", "{algorithm} unasked");
        let part = get(b, "k")
            .range("bytes=0-1")
            .header("x-amz-checksum-mode", "ENABLED");
        let part = part.expect(206, store).await;
        assert_eq!(
            part.header(algorithm.header()),
            "",
            "{algorithm} of a range"
        );
        let listed = list_v2(b).expect(200, store).await;
        assert_eq!(listed.element("ChecksumAlgorithm"), algorithm.name());
        copy((b, "k"), (b, "copied")).expect(200, store).await;
        let copied = head(b, "copied").header("x-amz-checksum-mode", "ENABLED");
        assert_eq!(
            copied.expect(200, store).await.header(algorithm.header()),
            sum
        );
        super::requests::delete(b, "copied")
            .expect(204, store)
            .await;
    }
}

async fn a_checksum_in_a_trailer_is_kept(store: &dyn Store) {
    let b = bucket(store, "contract-checksums-trailer").await;
    let (header, sum) = (
        Algorithm::Crc32.header(),
        Checksum::of(Algorithm::Crc32, b"hello").to_base64(),
    );
    put(b, "k")
        .header("x-amz-trailer", header)
        .body(bodies::with_trailer(b"hello", header, &sum))
        .expect(200, store)
        .await;
    let read = get(b, "k")
        .header("x-amz-checksum-mode", "ENABLED")
        .expect(200, store)
        .await;
    assert_eq!(
        (read.header(header), read.text().as_str()),
        (sum.as_str(), "hello")
    );
    assert_eq!(read.header("x-amz-trailer"), "");
}

async fn a_named_algorithm_is_computed(store: &dyn Store) {
    let b = bucket(store, "contract-checksums-named").await;
    put(b, "k").body("hello").expect(200, store).await;
    copy((b, "k"), (b, "c"))
        .header("x-amz-checksum-algorithm", "SHA256")
        .expect(200, store)
        .await;
    let read = head(b, "c")
        .header("x-amz-checksum-mode", "ENABLED")
        .expect(200, store)
        .await;
    let sum = Checksum::of(Algorithm::Sha256, b"hello").to_base64();
    assert_eq!(read.header(Algorithm::Sha256.header()), sum);
}
