//! Multipart uploads, whole.

use forebay_s3::checksum::{self, Algorithm, Checksum};

use super::{
    PART_BYTES_MIN, bucket,
    requests::{
        abort_upload, attributes, complete_upload, create_upload, get, head, list_parts,
        list_uploads, list_v2, put, upload_part, upload_part_copy,
    },
    sample_bytes,
};
use crate::Store;

pub(super) async fn check(store: &dyn Store) {
    parts_become_one_object(store).await;
    parts_can_be_replaced_and_left_out(store).await;
    lists_of_parts_that_do_not_fit_are_refused(store).await;
    composite_checksums_are_of_the_parts(store).await;
    full_object_checksums_are_of_the_bytes(store).await;
    parts_can_be_copied(store).await;
    uploads_and_parts_are_listed(store).await;
    an_aborted_upload_is_gone(store).await;
    completing_follows_conditions(store).await;
    completing_again_is_answered_as_the_first_time(store).await;
}

async fn begin(store: &dyn Store, b: &str, key: &str) -> String {
    create_upload(b, key)
        .expect(200, store)
        .await
        .element("UploadId")
}

async fn parts_become_one_object(store: &dyn Store) {
    let b = bucket(store, "contract-upload").await;
    let created = create_upload(b, "a/k")
        .header("content-type", "text/plain")
        .header("x-amz-meta-colour", "blue")
        .header("x-amz-tagging", "t=1")
        .expect(200, store)
        .await;
    assert_eq!(
        (created.element("Bucket"), created.element("Key")),
        (b.into(), "a/k".into())
    );
    let id = created.element("UploadId");
    let (first, second) = (sample_bytes(PART_BYTES_MIN), b"the end".to_vec());
    let two = upload_part(b, "a/k", &id, 7)
        .body(second.clone())
        .expect(200, store)
        .await;
    let one = upload_part(b, "a/k", &id, 3)
        .body(first.clone())
        .expect(200, store)
        .await;
    assert_eq!(get(b, "a/k").refusal(store).await, "NoSuchKey");
    assert_eq!(list_v2(b).expect(200, store).await.elements("Key"), [""; 0]);
    let parts = [(3, one.etag()), (7, two.etag())];
    let done = complete_upload(b, "a/k", &id, &parts)
        .expect(200, store)
        .await;
    assert!(
        done.element("ETag").ends_with("-2\""),
        "{}",
        done.element("ETag")
    );
    let read = get(b, "a/k").expect(200, store).await;
    assert!(
        read.body == [first.clone(), second.clone()].concat(),
        "bytes of the whole"
    );
    assert_eq!(read.etag(), done.element("ETag"));
    assert_eq!(read.header("content-type"), "text/plain");
    assert_eq!(read.header("x-amz-meta-colour"), "blue");
    assert_eq!(read.header("x-amz-tagging-count"), "1");
    let across = format!("bytes={}-{}", first.len() - 2, first.len() + 1);
    let across = get(b, "a/k").range(&across).expect(206, store).await;
    assert!(across.body == [&first[first.len() - 2..], &second[..2]].concat());

    one_part_of_an_object_can_be_read(store, b, &first, &second).await;

    assert_eq!(
        list_parts(b, "a/k", &id).refusal(store).await,
        "NoSuchUpload"
    );
    put(b, "single").body("x").expect(200, store).await;
    get(b, "single")
        .query("partNumber", "1")
        .expect(206, store)
        .await;
    let second = get(b, "single")
        .query("partNumber", "2")
        .refusal(store)
        .await;
    assert_eq!(second, "InvalidPartNumber");
}

async fn one_part_of_an_object_can_be_read(
    store: &dyn Store,
    b: &str,
    first: &[u8],
    second: &[u8],
) {
    let part = get(b, "a/k")
        .query("partNumber", "2")
        .expect(206, store)
        .await;
    assert_eq!(part.body, second);
    assert_eq!(part.header("x-amz-mp-parts-count"), "2");
    let total = first.len() + second.len();
    let range = format!("bytes {}-{}/{total}", first.len(), total - 1);
    assert_eq!(part.header("content-range"), range);
    let seen = head(b, "a/k")
        .query("partNumber", "1")
        .expect(206, store)
        .await;
    assert_eq!(seen.header("content-length"), first.len().to_string());
    assert_eq!(
        get(b, "a/k").query("partNumber", "3").refusal(store).await,
        "InvalidPartNumber"
    );
    let both = get(b, "a/k")
        .query("partNumber", "1")
        .range("bytes=0-1")
        .refusal(store)
        .await;
    assert_eq!(both, "InvalidRequest");
    let told = attributes(b, "a/k", "ObjectParts,ObjectSize")
        .expect(200, store)
        .await;
    assert_eq!(told.element("PartsCount"), "2");
    assert_eq!(told.element("ObjectSize"), total.to_string());
}

async fn parts_can_be_replaced_and_left_out(store: &dyn Store) {
    let b = bucket(store, "contract-upload-replace").await;
    let id = begin(store, b, "k").await;
    upload_part(b, "k", &id, 1)
        .body("left out")
        .expect(200, store)
        .await;
    let stale = upload_part(b, "k", &id, 2)
        .body("first try")
        .expect(200, store)
        .await;
    let good = upload_part(b, "k", &id, 2)
        .body("second try")
        .expect(200, store)
        .await;
    let refused = complete_upload(b, "k", &id, &[(2, stale.etag())])
        .refusal(store)
        .await;
    assert_eq!(refused, "InvalidPart");
    let bare = good.etag().trim_matches('"');
    complete_upload(b, "k", &id, &[(2, bare)])
        .expect(200, store)
        .await;
    assert_eq!(get(b, "k").expect(200, store).await.text(), "second try");
    let uploads = list_uploads(b).expect(200, store).await;
    assert_eq!(uploads.elements("UploadId"), [""; 0]);
}

async fn lists_of_parts_that_do_not_fit_are_refused(store: &dyn Store) {
    let b = bucket(store, "contract-upload-list").await;
    let id = begin(store, b, "k").await;
    let one = upload_part(b, "k", &id, 1)
        .body("too small")
        .expect(200, store)
        .await;
    let two = upload_part(b, "k", &id, 2)
        .body("the last")
        .expect(200, store)
        .await;
    let complete = |parts: &[(u16, &str)]| complete_upload(b, "k", &id, parts);
    let (e1, e2) = (one.etag(), two.etag());
    for (parts, code) in [
        (&[(2, e2), (1, e1)][..], "InvalidPartOrder"),
        (&[(1, e1), (1, e1)], "InvalidPartOrder"),
        (&[(1, e2)], "InvalidPart"),
        (&[(3, e1)], "InvalidPart"),
        (&[(1, e1), (2, e2)], "EntityTooSmall"),
        (&[], "MalformedXML"),
    ] {
        assert_eq!(complete(parts).refusal(store).await, code, "{parts:?}");
    }
    assert_eq!(
        complete(&[]).body("no xml").refusal(store).await,
        "MalformedXML"
    );
    let wrong = |key, id: &str| complete_upload(b, key, id, &[(1, e1)]);
    assert_eq!(
        wrong("k", "nonsense/../id").refusal(store).await,
        "NoSuchUpload"
    );
    assert_eq!(wrong("other", &id).refusal(store).await, "NoSuchUpload");
    let part = upload_part(b, "k", "nonsense", 1)
        .body("x")
        .refusal(store)
        .await;
    assert_eq!(part, "NoSuchUpload");
    assert_eq!(get(b, "k").refusal(store).await, "NoSuchKey");
    complete(&[(1, e1)]).expect(200, store).await;
}

async fn composite_checksums_are_of_the_parts(store: &dyn Store) {
    let b = bucket(store, "contract-upload-composite").await;
    let algorithm = Algorithm::Sha256;
    let created = create_upload(b, "k").header("x-amz-checksum-algorithm", "SHA256");
    let created = created.expect(200, store).await;
    assert_eq!(created.header("x-amz-checksum-type"), "COMPOSITE");
    let id = created.element("UploadId");
    let bytes = [sample_bytes(PART_BYTES_MIN), b"end".to_vec()];
    let sums = bytes.each_ref().map(|part| Checksum::of(algorithm, part));
    let mut etags = Vec::new();
    for (number, (bytes, sum)) in (1..).zip(bytes.iter().zip(sums)) {
        let part = upload_part(b, "k", &id, number)
            .header(algorithm.header(), sum.to_base64())
            .body(bytes.clone())
            .expect(200, store)
            .await;
        assert_eq!(part.header(algorithm.header()), sum.to_base64());
        etags.push(part.etag().to_owned());
    }
    let other = upload_part(b, "k", &id, 3).header(
        Algorithm::Crc32.header(),
        Checksum::of(Algorithm::Crc32, b"x").to_base64(),
    );
    assert_eq!(other.body("x").refusal(store).await, "InvalidRequest");
    let parts = [(1, etags[0].as_str()), (2, etags[1].as_str())];
    let done = complete_upload(b, "k", &id, &parts)
        .expect(200, store)
        .await;
    let expected = checksum::composite(algorithm, &sums)
        .expect("two parts")
        .to_string();
    assert_eq!(done.element("ChecksumSHA256"), expected);
    let read = head(b, "k")
        .header("x-amz-checksum-mode", "ENABLED")
        .expect(200, store)
        .await;
    assert_eq!(read.header(algorithm.header()), expected);
    assert_eq!(read.header("x-amz-checksum-type"), "COMPOSITE");
    let part = get(b, "k")
        .query("partNumber", "2")
        .header("x-amz-checksum-mode", "ENABLED");
    let part = part.expect(206, store).await;
    assert_eq!(part.header(algorithm.header()), sums[1].to_base64());
    let told = attributes(b, "k", "Checksum,ObjectParts").header("x-amz-max-parts", "1");
    let told = told.expect(200, store).await;
    assert_eq!(
        told.elements("ChecksumSHA256"),
        [expected, sums[0].to_base64()]
    );
    assert_eq!(told.element("IsTruncated"), "true");
}

async fn full_object_checksums_are_of_the_bytes(store: &dyn Store) {
    let b = bucket(store, "contract-upload-full").await;
    let bytes = [sample_bytes(PART_BYTES_MIN), b"end".to_vec()];
    for (named, algorithm) in [
        (Some("CRC32"), Algorithm::Crc32),
        (Some("CRC32C"), Algorithm::Crc32c),
        (Some("CRC64NVME"), Algorithm::Crc64Nvme),
        (None, Algorithm::Crc64Nvme),
    ] {
        let mut request = create_upload(b, "k");
        if let Some(name) = named {
            request = request
                .header("x-amz-checksum-algorithm", name)
                .header("x-amz-checksum-type", "FULL_OBJECT");
        }
        let id = request.expect(200, store).await.element("UploadId");
        let mut etags = Vec::new();
        for (number, part) in (1..).zip(&bytes) {
            let part = upload_part(b, "k", &id, number).body(part.clone());
            etags.push(part.expect(200, store).await.etag().to_owned());
        }
        let expected = Checksum::of(algorithm, &bytes.concat()).to_base64();
        let parts = [(1, etags[0].as_str()), (2, etags[1].as_str())];
        let wrong = Checksum::of(algorithm, b"other").to_base64();
        let refused = complete_upload(b, "k", &id, &parts).header(algorithm.header(), wrong);
        assert_eq!(refused.refusal(store).await, "BadDigest", "{named:?}");
        let done = complete_upload(b, "k", &id, &parts).header(algorithm.header(), &expected);
        let done = done.expect(200, store).await;
        assert_eq!(done.element(algorithm.xml_element()), expected, "{named:?}");
        assert_eq!(done.element("ChecksumType"), "FULL_OBJECT");
    }
    let odd = create_upload(b, "k")
        .header("x-amz-checksum-algorithm", "SHA1")
        .header("x-amz-checksum-type", "FULL_OBJECT");
    assert_eq!(odd.refusal(store).await, "InvalidRequest");
}

async fn parts_can_be_copied(store: &dyn Store) {
    let b = bucket(store, "contract-upload-copy").await;
    let bytes = sample_bytes(PART_BYTES_MIN + 10);
    put(b, "source")
        .body(bytes.clone())
        .expect(200, store)
        .await;
    let id = begin(store, b, "k").await;
    let whole = upload_part_copy((b, "source"), (b, "k"), &id, 1)
        .expect(200, store)
        .await;
    let ranged = upload_part_copy((b, "source"), (b, "k"), &id, 2)
        .header("x-amz-copy-source-range", "bytes=5-14")
        .expect(200, store)
        .await;
    let past = format!("bytes=0-{}", bytes.len());
    for range in [past.as_str(), "bytes=5-", "nonsense"] {
        let refused = upload_part_copy((b, "source"), (b, "k"), &id, 3)
            .header("x-amz-copy-source-range", range)
            .refusal(store)
            .await;
        assert_eq!(refused, "InvalidArgument", "{range}");
    }
    let parts = [(1, whole.element("ETag")), (2, ranged.element("ETag"))];
    let parts = parts
        .each_ref()
        .map(|(number, etag)| (*number, etag.as_str()));
    complete_upload(b, "k", &id, &parts)
        .expect(200, store)
        .await;
    let read = get(b, "k").expect(200, store).await;
    assert!(
        read.body == [&bytes[..], &bytes[5..15]].concat(),
        "bytes of copied parts"
    );
}

async fn uploads_and_parts_are_listed(store: &dyn Store) {
    let b = bucket(store, "contract-upload-lists").await;
    let mut ids = Vec::new();
    for key in ["a/x", "a/y", "b", "b"] {
        ids.push(begin(store, b, key).await);
    }
    let all = list_uploads(b).expect(200, store).await;
    assert_eq!(all.elements("Key"), ["a/x", "a/y", "b", "b"]);
    let mut listed = all.elements("UploadId");
    listed.sort_unstable();
    let mut expected = ids.clone();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    let rolled = list_uploads(b)
        .query("delimiter", "/")
        .expect(200, store)
        .await;
    assert_eq!(rolled.elements("Key"), ["b", "b"]);
    assert!(
        rolled
            .element("CommonPrefixes")
            .contains("<Prefix>a/</Prefix>")
    );
    let prefixed = list_uploads(b)
        .query("prefix", "a/")
        .expect(200, store)
        .await;
    assert_eq!(prefixed.elements("Key"), ["a/x", "a/y"]);
    let (mut seen, mut key, mut id) = (Vec::new(), String::new(), String::new());
    loop {
        let page = list_uploads(b)
            .query("max-uploads", "1")
            .query("key-marker", &key)
            .query("upload-id-marker", &id)
            .expect(200, store)
            .await;
        seen.extend(page.elements("UploadId"));
        if page.element("IsTruncated") == "false" {
            break;
        }
        (key, id) = (
            page.element("NextKeyMarker"),
            page.element("NextUploadIdMarker"),
        );
    }
    seen.retain(|id| !id.is_empty());
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, expected);

    for number in [1, 2, 10] {
        let body = "x".repeat(usize::from(number));
        upload_part(b, "b", &ids[2], number)
            .body(body)
            .expect(200, store)
            .await;
    }
    let parts = list_parts(b, "b", &ids[2]).expect(200, store).await;
    assert_eq!(parts.elements("PartNumber"), ["1", "2", "10"]);
    assert_eq!(parts.elements("Size"), ["1", "2", "10"]);
    let first = list_parts(b, "b", &ids[2])
        .query("max-parts", "2")
        .expect(200, store)
        .await;
    assert_eq!(first.elements("PartNumber"), ["1", "2"]);
    assert_eq!(first.element("IsTruncated"), "true");
    let marker = first.element("NextPartNumberMarker");
    let rest = list_parts(b, "b", &ids[2]).query("part-number-marker", &marker);
    assert_eq!(rest.expect(200, store).await.elements("PartNumber"), ["10"]);
}

async fn an_aborted_upload_is_gone(store: &dyn Store) {
    let b = bucket(store, "contract-upload-abort").await;
    let id = begin(store, b, "k").await;
    let part = upload_part(b, "k", &id, 1)
        .body("x")
        .expect(200, store)
        .await;
    abort_upload(b, "k", &id).expect(204, store).await;
    assert_eq!(
        abort_upload(b, "k", &id).refusal(store).await,
        "NoSuchUpload"
    );
    let refused = complete_upload(b, "k", &id, &[(1, part.etag())])
        .refusal(store)
        .await;
    assert_eq!(refused, "NoSuchUpload");
    let again = upload_part(b, "k", &id, 2).body("x").refusal(store).await;
    assert_eq!(again, "NoSuchUpload");
    // An upload that was never finished does not keep its bucket alive.
    begin(store, b, "left").await;
    super::requests::delete_bucket(b).expect(204, store).await;
}

async fn completing_follows_conditions(store: &dyn Store) {
    let b = bucket(store, "contract-upload-cond").await;
    put(b, "k").body("there").expect(200, store).await;
    let id = begin(store, b, "k").await;
    let part = upload_part(b, "k", &id, 1)
        .body("new")
        .expect(200, store)
        .await;
    let complete = || complete_upload(b, "k", &id, &[(1, part.etag())]);
    let refused = complete().header("if-none-match", "*").refusal(store).await;
    assert_eq!(refused, "PreconditionFailed");
    let size = complete()
        .header("x-amz-mp-object-size", "4")
        .refusal(store)
        .await;
    assert_eq!(size, "InvalidRequest");
    let etag = head(b, "k").expect(200, store).await.etag().to_owned();
    complete().header("if-match", etag).expect(200, store).await;
    assert_eq!(get(b, "k").expect(200, store).await.text(), "new");
}

/// A client that lost the answer asks again, and must not be told that its upload is gone.
async fn completing_again_is_answered_as_the_first_time(store: &dyn Store) {
    let b = bucket(store, "contract-upload-again").await;
    let id = begin(store, b, "k").await;
    let one = upload_part(b, "k", &id, 1).body("the part");
    let one = one.expect(200, store).await;
    let other = upload_part(b, "k", &id, 2).body("left out");
    let other = other.expect(200, store).await;
    let parts = [(1, one.etag())];
    let first = complete_upload(b, "k", &id, &parts);
    let first = first.expect(200, store).await;
    let written = head(b, "k").expect(200, store).await;
    for _ in 0..2 {
        let again = complete_upload(b, "k", &id, &parts);
        let again = again.header("if-none-match", "*").expect(200, store).await;
        assert_eq!(again.text(), first.text());
    }
    let read = head(b, "k").expect(200, store).await;
    assert_eq!(
        read.header("last-modified"),
        written.header("last-modified")
    );

    for parts in [&[(1, other.etag())][..], &[parts[0], (2, other.etag())]] {
        let another = complete_upload(b, "k", &id, parts).refusal(store).await;
        assert_eq!(another, "NoSuchUpload", "it was completed with other parts");
    }
    let aborted = begin(store, b, "k").await;
    abort_upload(b, "k", &aborted).expect(204, store).await;
    let never = complete_upload(b, "k", &aborted, &parts);
    assert_eq!(never.refusal(store).await, "NoSuchUpload");
    let elsewhere = complete_upload(b, "other", &id, &parts);
    assert_eq!(elsewhere.refusal(store).await, "NoSuchUpload");
    put(b, "k").body("newer").expect(200, store).await;
    let late = complete_upload(b, "k", &id, &parts).refusal(store).await;
    assert_eq!(late, "NoSuchUpload", "the object is another by now");
    assert_eq!(get(b, "k").expect(200, store).await.text(), "newer");
}
