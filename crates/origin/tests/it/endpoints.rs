//! Several endpoints that share their data.

use forebay_origin::OriginSettings;
use forebay_store::contract::requests::{get, put};

use crate::scripted::{Scripted, ok, settings, status, store};

/// Settings with all of these endpoints.
pub(crate) fn settings_of(origins: &[&Scripted]) -> OriginSettings {
    let mut all = settings(&format!("http://{}", origins[0].address));
    all.endpoints = origins
        .iter()
        .map(|origin| format!("http://{}", origin.address).parse().unwrap())
        .collect();
    all
}

#[tokio::test]
async fn each_attempt_is_signed_for_the_host_that_it_goes_to() {
    let busy = Scripted::answering(|_| status(503)).await;
    let calm = Scripted::answering(|_| ok(b"calm")).await;
    let store = store(&settings_of(&[&busy, &calm]));
    for _ in 0..8 {
        get("bucket", "k").expect(200, &store).await;
    }
    for origin in [&busy, &calm] {
        for seen in origin.seen() {
            assert_eq!(seen.header("host").unwrap(), origin.address.to_string());
        }
    }
    let signature = |origin: &Scripted| {
        let seen = origin.seen();
        seen.first()
            .and_then(|seen| Some(seen.header("authorization")?.to_owned()))
    };
    assert_ne!(signature(&busy), signature(&calm));
}

#[tokio::test]
async fn an_upload_that_was_not_sent_goes_to_another_endpoint_signed_anew() {
    let gone = Scripted::answering(|_| status(200)).await;
    let calm = Scripted::answering(|_| status(200)).await;
    let mut all = settings_of(&[&gone, &calm]);
    all.payload_signing = forebay_origin::PayloadSigning::Chunks;
    let store = store(&all);
    drop(gone);
    for _ in 0..4 {
        put("bucket", "k").body("bytes").expect(200, &store).await;
    }
    let seen = calm.seen();
    assert_eq!(seen.len(), 4);
    for seen in seen {
        assert_eq!(seen.header("host").unwrap(), calm.address.to_string());
        assert!(seen.body.starts_with(b"5;chunk-signature="));
    }
}
