//! Listings: V1, V2 and versions, by prefix and delimiter, page by page.

use super::{
    bucket,
    requests::{Answer, list_v1, list_v2, list_versions, put},
};
use crate::Store;

/// In S3's order: by bytes.
const KEYS: [&str; 9] = ["a", "a/b", "a/c/d", "a/c/e", "a0", "b c", "b/", "b/x", "é"];

pub(super) async fn check(store: &dyn Store) {
    let b = bucket(store, "contract-list").await;
    assert_eq!(list_v2(b).expect(200, store).await.element("KeyCount"), "0");
    for key in KEYS {
        put(b, key)
            .body(format!("of {key}"))
            .expect(200, store)
            .await;
    }
    entries_tell_of_their_objects(store, b).await;
    prefix_and_delimiter_roll_up(store, b).await;
    pages_continue_where_they_ended(store, b).await;
    markers_begin_after_themselves(store, b).await;
    names_are_encoded_when_asked(store).await;
    every_object_is_its_null_version(store, b).await;
    bad_parameters_are_refused(store, b).await;
}

async fn entries_tell_of_their_objects(store: &dyn Store, b: &str) {
    let page = list_v2(b).expect(200, store).await;
    assert_eq!(page.elements("Key"), KEYS);
    assert_eq!(page.element("KeyCount"), "9");
    assert_eq!(page.element("IsTruncated"), "false");
    assert_eq!(page.element("Name"), b);
    assert_eq!(page.element("MaxKeys"), "1000");
    assert_eq!(page.element("Size"), "4");
    assert_eq!(page.element("StorageClass"), "STANDARD");
    let read = super::requests::get(b, "a").expect(200, store).await;
    assert_eq!(page.element("ETag"), read.etag());
    let modified = forebay_s3::time::parse_rfc3339(&page.element("LastModified"));
    let expected = forebay_s3::time::parse_http_date(read.header("last-modified"));
    assert!(modified.is_some(), "{}", page.element("LastModified"));
    assert_eq!(modified.map(|ms| ms.div_euclid(1000)), expected);
    assert_eq!(page.elements("Owner"), [""; 0]);
    let owned = list_v2(b)
        .query("fetch-owner", "true")
        .expect(200, store)
        .await;
    assert_eq!(owned.elements("Owner").len(), KEYS.len());
    let v1 = list_v1(b).expect(200, store).await;
    assert_eq!(v1.elements("Key"), KEYS);
    assert_eq!(v1.elements("Owner").len(), KEYS.len());
}

/// Keys of the entries, and the common prefixes.
fn shape(page: &Answer) -> (Vec<String>, Vec<String>) {
    let prefixes = page
        .elements("CommonPrefixes")
        .into_iter()
        .map(|p| super::requests::elements(&p, "Prefix").concat());
    (page.elements("Key"), prefixes.collect())
}

async fn prefix_and_delimiter_roll_up(store: &dyn Store, b: &str) {
    type Row = (
        &'static str,
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
    );
    let rows: [Row; 9] = [
        ("", "/", &["a", "a0", "b c", "é"], &["a/", "b/"]),
        ("a", "/", &["a", "a0"], &["a/"]),
        ("a/", "/", &["a/b"], &["a/c/"]),
        ("a/c", "/", &[], &["a/c/"]),
        ("b/", "/", &["b/", "b/x"], &[]),
        ("b/", "", &["b/", "b/x"], &[]),
        (
            "",
            "c",
            &["a", "a/b", "a0", "b/", "b/x", "é"],
            &["a/c", "b c"],
        ),
        ("none", "/", &[], &[]),
        (
            "",
            "é",
            &["a", "a/b", "a/c/d", "a/c/e", "a0", "b c", "b/", "b/x"],
            &["é"],
        ),
    ];
    for (prefix, delimiter, keys, prefixes) in rows {
        for list in [list_v1(b), list_v2(b)] {
            let page = list
                .query("prefix", prefix)
                .query("delimiter", delimiter)
                .expect(200, store)
                .await;
            let (found_keys, found_prefixes) = shape(&page);
            assert_eq!(
                found_keys, keys,
                "prefix {prefix:?}, delimiter {delimiter:?}"
            );
            assert_eq!(
                found_prefixes, prefixes,
                "prefix {prefix:?}, delimiter {delimiter:?}"
            );
        }
    }
}

async fn pages_continue_where_they_ended(store: &dyn Store, b: &str) {
    for delimiter in ["", "/"] {
        let whole = list_v2(b)
            .query("delimiter", delimiter)
            .expect(200, store)
            .await;
        let (keys, prefixes) = shape(&whole);
        for size in 1..=10 {
            let first = |list: super::requests::Builder| {
                list.query("delimiter", delimiter)
                    .query("max-keys", &size.to_string())
            };
            let (mut v2_keys, mut v2_prefixes, mut token) = (Vec::new(), Vec::new(), String::new());
            loop {
                let mut request = first(list_v2(b));
                if !token.is_empty() {
                    request = request.query("continuation-token", &token);
                }
                let page = request.expect(200, store).await;
                let (k, p) = shape(&page);
                assert_eq!(page.element("KeyCount"), (k.len() + p.len()).to_string());
                v2_keys.extend(k);
                v2_prefixes.extend(p);
                token = page.element("NextContinuationToken");
                assert_eq!(token.is_empty(), page.element("IsTruncated") == "false");
                if token.is_empty() {
                    break;
                }
            }
            assert_eq!(
                (&v2_keys, &v2_prefixes),
                (&keys, &prefixes),
                "V2, pages of {size}"
            );
            let (mut v1_keys, mut v1_prefixes, mut marker) =
                (Vec::new(), Vec::new(), String::new());
            loop {
                let page = first(list_v1(b))
                    .query("marker", &marker)
                    .expect(200, store)
                    .await;
                let (k, p) = shape(&page);
                // Without a delimiter the last key is the marker, as clients know.
                let next = page.element("NextMarker");
                marker = if next.is_empty() {
                    k.last().cloned().unwrap_or_default()
                } else {
                    next
                };
                v1_keys.extend(k);
                v1_prefixes.extend(p);
                if page.element("IsTruncated") == "false" {
                    break;
                }
            }
            assert_eq!(
                (&v1_keys, &v1_prefixes),
                (&keys, &prefixes),
                "V1, pages of {size}"
            );
        }
    }
    let none = list_v2(b).query("max-keys", "0").expect(200, store).await;
    assert_eq!(
        (none.element("KeyCount"), none.element("IsTruncated")),
        ("0".into(), "false".into())
    );
}

async fn markers_begin_after_themselves(store: &dyn Store, b: &str) {
    for (after, skipped) in [
        ("a", 1),
        ("a/", 1),
        ("a/b", 2),
        ("a/c/e", 4),
        ("é", 9),
        ("zz", 8),
    ] {
        let v2 = list_v2(b)
            .query("start-after", after)
            .expect(200, store)
            .await;
        assert_eq!(v2.elements("Key"), &KEYS[skipped..], "start-after {after}");
        assert_eq!(v2.element("StartAfter"), after);
        let v1 = list_v1(b).query("marker", after).expect(200, store).await;
        assert_eq!(v1.elements("Key"), &KEYS[skipped..], "marker {after}");
        assert_eq!(v1.element("Marker"), after);
    }
    let within = list_v2(b)
        .query("start-after", "a/b")
        .query("delimiter", "/");
    assert_eq!(shape(&within.expect(200, store).await).1, ["a/", "b/"]);
}

async fn names_are_encoded_when_asked(store: &dyn Store) {
    let b = bucket(store, "contract-list-encoding").await;
    put(b, "a b/c+d&é").body("x").expect(200, store).await;
    put(b, "p q/x").body("x").expect(200, store).await;
    let page = list_v2(b)
        .query("encoding-type", "url")
        .query("prefix", "")
        .query("start-after", " ")
        .expect(200, store)
        .await;
    assert_eq!(page.elements("Key"), ["a%20b/c%2Bd%26%C3%A9", "p%20q/x"]);
    assert_eq!(page.element("EncodingType"), "url");
    assert_eq!(page.element("StartAfter"), "%20");
    let rolled = list_v1(b)
        .query("encoding-type", "url")
        .query("delimiter", "/");
    assert_eq!(
        shape(&rolled.expect(200, store).await).1,
        ["a%20b/", "p%20q/"]
    );
}

async fn every_object_is_its_null_version(store: &dyn Store, b: &str) {
    let page = list_versions(b).expect(200, store).await;
    assert_eq!(page.elements("Key"), KEYS);
    assert!(page.elements("VersionId").iter().all(|id| id == "null"));
    assert!(
        page.elements("IsLatest")
            .iter()
            .all(|latest| latest == "true")
    );
    let first = list_versions(b)
        .query("max-keys", "2")
        .expect(200, store)
        .await;
    assert_eq!(first.elements("Key"), KEYS[..2]);
    let next = list_versions(b).query("key-marker", &first.element("NextKeyMarker"));
    assert_eq!(next.expect(200, store).await.elements("Key"), KEYS[2..]);
}

async fn bad_parameters_are_refused(store: &dyn Store, b: &str) {
    for (name, value) in [
        ("max-keys", "many"),
        ("max-keys", "-1"),
        ("continuation-token", ""),
        ("continuation-token", "!"),
        ("encoding-type", "base64"),
    ] {
        let refused = list_v2(b).query(name, value).refusal(store).await;
        assert_eq!(refused, "InvalidArgument", "{name}={value}");
    }
}
