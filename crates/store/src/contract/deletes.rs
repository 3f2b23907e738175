//! Deletes of many objects in one request.

use super::{
    bucket,
    requests::{delete_many, get, list_v2, put},
};
use crate::Store;

pub(super) async fn check(store: &dyn Store) {
    let b = bucket(store, "contract-deletes").await;
    let keys = ["a", "a/b", "c d", "e&f<g>", "h\u{1}i", "ä"];
    for key in keys {
        put(b, key).body("x").expect(200, store).await;
    }
    put(b, "kept").body("x").expect(200, store).await;
    let mut named: Vec<&str> = keys.to_vec();
    named.push("never was");
    let deleted = delete_many(b, &named).expect(200, store).await;
    assert_eq!(deleted.elements("Key"), named);
    assert_eq!(deleted.elements("Code"), [""; 0]);
    assert_eq!(
        list_v2(b).expect(200, store).await.elements("Key"),
        ["kept"]
    );

    let etag = put(b, "k")
        .body("x")
        .expect(200, store)
        .await
        .etag()
        .to_owned();
    let conditional = format!(
        "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>\
         <Object><Key>k</Key><ETag>{etag}</ETag></Object>\
         <Object><Key>kept</Key><ETag>\"other\"</ETag></Object></Delete>"
    );
    let answer = delete_many(b, &[])
        .body(conditional)
        .expect(200, store)
        .await;
    assert_eq!(answer.elements("Deleted"), [""; 0]);
    assert_eq!(answer.element("Code"), "PreconditionFailed");
    assert_eq!(get(b, "k").refusal(store).await, "NoSuchKey");
    get(b, "kept").expect(200, store).await;

    let too_many: Vec<String> = (0..1001).map(|n| n.to_string()).collect();
    let too_many: Vec<&str> = too_many.iter().map(String::as_str).collect();
    for request in [
        delete_many(b, &[]),
        delete_many(b, &too_many),
        delete_many(b, &[""]),
        delete_many(b, &[]).body("no xml"),
    ] {
        assert_eq!(request.refusal(store).await, "MalformedXML");
    }
    assert_eq!(
        delete_many("contract-gone", &["k"]).refusal(store).await,
        "NoSuchBucket"
    );
}
