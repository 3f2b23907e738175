//! Buckets: made once, listed, empty before they go.

use forebay_s3::operation::{OperationName, Target};
use http::Method;

use super::requests::{
    bucket_name, create_bucket, delete, delete_bucket, get, head_bucket, list_buckets, list_v2,
    other, put,
};
use crate::Store;

pub(super) async fn check(store: &dyn Store) {
    a_bucket_lives_from_create_to_delete(store).await;
    buckets_are_listed_by_name(store).await;
    settings_of_a_plain_bucket_are_told(store).await;
}

async fn a_bucket_lives_from_create_to_delete(store: &dyn Store) {
    let name = "contract-bucket-life";
    assert_eq!(head_bucket(name).refusal(store).await, "NoSuchBucket");
    assert_eq!(get(name, "k").refusal(store).await, "NoSuchBucket");
    assert_eq!(
        put(name, "k").body("x").refusal(store).await,
        "NoSuchBucket"
    );
    assert_eq!(delete(name, "k").refusal(store).await, "NoSuchBucket");
    assert_eq!(list_v2(name).refusal(store).await, "NoSuchBucket");
    assert_eq!(delete_bucket(name).refusal(store).await, "NoSuchBucket");
    let location = "<CreateBucketConfiguration><LocationConstraint>eu-west-1\
                    </LocationConstraint></CreateBucketConfiguration>";
    create_bucket(name).body(location).expect(200, store).await;
    head_bucket(name).expect(200, store).await;
    assert_eq!(
        create_bucket(name).refusal(store).await,
        "BucketAlreadyOwnedByYou"
    );
    put(name, "a/b").body("x").expect(200, store).await;
    assert_eq!(delete_bucket(name).refusal(store).await, "BucketNotEmpty");
    delete(name, "a/b").expect(204, store).await;
    delete_bucket(name).expect(204, store).await;
    assert_eq!(head_bucket(name).refusal(store).await, "NoSuchBucket");
    assert_eq!(
        create_bucket("Not_Allowed").refusal(store).await,
        "InvalidBucketName"
    );
}

async fn buckets_are_listed_by_name(store: &dyn Store) {
    for name in ["contract-list-b", "contract-list-a", "contract-list-a.x"] {
        create_bucket(name).expect(200, store).await;
    }
    let listed = list_buckets().expect(200, store).await.elements("Name");
    let ours: Vec<_> = listed
        .iter()
        .filter(|n| n.starts_with("contract-list-"))
        .collect();
    assert_eq!(
        ours,
        ["contract-list-a", "contract-list-a.x", "contract-list-b"]
    );
}

async fn settings_of_a_plain_bucket_are_told(store: &dyn Store) {
    let name = "contract-bucket-settings";
    create_bucket(name).expect(200, store).await;
    // The sub-resource names the operation on the wire; without it, it is a listing.
    let ask = |operation, sub_resource| {
        other(Method::GET, operation, Target::Bucket(bucket_name(name))).query(sub_resource, "")
    };
    let location = ask(OperationName::GetBucketLocation, "location");
    let location = location.expect(200, store).await;
    assert!(location.text().contains("LocationConstraint"));
    let versioning = ask(OperationName::GetBucketVersioning, "versioning");
    let versioning = versioning.expect(200, store).await;
    assert_eq!(versioning.element("Status"), "");
    let acl = ask(OperationName::GetBucketAcl, "acl");
    assert_eq!(
        acl.expect(200, store).await.element("Permission"),
        "FULL_CONTROL"
    );
    let website = ask(OperationName::GetBucketWebsite, "website");
    assert_eq!(website.refusal(store).await, "NotImplemented");
}
