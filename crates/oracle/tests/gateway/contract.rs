//! The contract of stores over HTTP: the origin store as its client, the path of a request in
//! between.
//!
//! What holds of a store in this process must hold of it behind a gateway, and of a gateway
//! behind a gateway, or something was lost on the way.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use forebay_origin::{CredentialsSource, OriginSettings, OriginStore, PayloadSigning, Protocol};
use forebay_s3::{
    operation::OperationName,
    sigv4::{Credentials, SecretKey},
};
use forebay_store::{Body, Clock, Error, Request, Response, Store, contract};
use forebay_telemetry::origin::OriginMetrics;
use http::{Method, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::server::{ACCESS_KEY, REGION, SECRET_KEY, Server};

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_store_keeps_the_contract_behind_a_gateway() {
    check(
        &Server::on_memory().await,
        Protocol::Http1,
        PayloadSigning::Unsigned,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_keeps_the_contract_behind_a_gateway() {
    check(
        &Server::on_directory().await,
        Protocol::Http1,
        PayloadSigning::Chunks,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_a_cache_keeps_the_contract_before_a_gateway() {
    let server = Server::before(Server::on_memory().await).await;
    check(&server, Protocol::Http2, PayloadSigning::Chunks).await;
}

async fn check(server: &Server, protocol: Protocol, payload_signing: PayloadSigning) {
    let mut settings = OriginSettings::new(server.url().parse().unwrap());
    REGION.clone_into(&mut settings.region);
    settings.protocol = protocol;
    settings.payload_signing = payload_signing;
    settings.credentials = CredentialsSource::Static(Credentials {
        access_key_id: ACCESS_KEY.into(),
        secret_access_key: SecretKey::new(SECRET_KEY),
        session_token: None,
    });
    let store = OriginStore::new(&settings, Clock::system(), OriginMetrics::default()).unwrap();
    let store: Arc<dyn Store> = Arc::new(OverHttp(store));
    contract::check(async || Arc::clone(&store)).await;
}

/// An origin store that makes up for what a caller in this process can do and a client of S3
/// cannot: send a body of unknown length, and learn the code of a failed HEAD.
#[derive(Debug)]
struct OverHttp(OriginStore);

#[async_trait::async_trait]
impl Store for OverHttp {
    async fn call(&self, mut request: Request) -> Result<Response, Error> {
        if request.body.length().is_none() {
            request.body = measured(request.body).await;
        }
        let operation = request.operation.name();
        let is_head = request.method == Method::HEAD;
        let mut response = self.0.call(request).await?;
        if is_head && let Some(code) = code_of_head(operation, response.status) {
            response.body = Body::from(format!("<Error><Code>{code}</Code></Error>"));
        }
        Ok(response)
    }
}

/// What clients take the status of a failed HEAD for: its answer has no document.
fn code_of_head(operation: OperationName, status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::NOT_FOUND if operation == OperationName::HeadBucket => Some("NoSuchBucket"),
        StatusCode::NOT_FOUND => Some("NoSuchKey"),
        StatusCode::PRECONDITION_FAILED => Some("PreconditionFailed"),
        _ => None,
    }
}

/// The same body with its length told; one that fails says that it is longer than it will be.
async fn measured(mut body: Body) -> Body {
    let mut frames = VecDeque::new();
    while let Some(frame) = body.frame().await {
        frames.push_back(frame);
    }
    let left = frames.iter().map(told_bytes).sum();
    Body::stream(Measured { frames, left })
}

struct Measured {
    frames: VecDeque<Result<Frame<Bytes>, Error>>,
    left: u64,
}

fn told_bytes(frame: &Result<Frame<Bytes>, Error>) -> u64 {
    match frame {
        Ok(frame) => frame.data_ref().map_or(0, |data| data.len() as u64),
        Err(_) => 1,
    }
}

impl HttpBody for Measured {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = self.frames.pop_front();
        self.left -= frame.as_ref().map_or(0, told_bytes);
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
