//! The path of a request, from its head to its answer. Read [`answer`] first: it is the list.
//!
//! ```text
//! begin ─▶ limits ─▶ classify ─▶ authenticate ─▶ authorize ─▶ take the body in ─▶ route ─▶ store
//!                                                                                            │
//! end ◀─ meter, access log ◀─ body leaves ◀─ respond ◀────────────────────────────────────────┘
//! ```
//!
//! Each step is a module that says why it is there; none knows the others. A step that refuses
//! returns an [`Error`], and [`respond`] alone makes an S3 answer of it. Nothing reaches a store
//! that was not authenticated, authorized and bounded, on cache hits as well, since the cache is
//! a layer behind these steps.
//!
//! Called by the server for each request of a connection; calls one store.

mod authenticate;
mod authorize;
mod delete_objects;
mod exchange;
mod headers;
mod limits;
mod post_object;
mod respond;
mod upload;

use std::{convert::Infallible, sync::Arc};

use forebay_s3::{
    classify::classify,
    code::Code,
    operation::{Operation, OperationName},
};
use forebay_store::{Body, Error, Request, Response};
use http::request::Parts;
use hyper::body::Incoming;

use crate::server::Connection;
use authenticate::Proof;
use exchange::{Exchange, Sending};
use upload::Unread;

pub(crate) use exchange::metrics;

/// Serves one request of a connection.
pub(crate) async fn serve(
    connection: Arc<Connection>,
    incoming: http::Request<Incoming>,
) -> Result<http::Response<Sending>, Infallible> {
    let mut exchange = Exchange::begin(connection, &incoming);
    let result = answer(&mut exchange, incoming).await;
    Ok(respond::respond(exchange, result))
}

/// The steps in their order.
async fn answer(
    exchange: &mut Exchange,
    incoming: http::Request<Incoming>,
) -> Result<Response, Error> {
    let connection = Arc::clone(exchange.connection());
    let shared = &connection.worker.shared;
    let (head, body) = incoming.into_parts();
    // A body that nobody reads is drained when it is dropped, so that the client reads our answer.
    let body = Unread::new(body, &head, &connection);

    // Bounds come first, so that no later step works on more than they allow.
    limits::check(&head, &shared.settings.limits)?;

    // Names the operation; everything after it matches on that and never on a path.
    let host = headers::host(&head);
    let operation = classify(
        &authorize::language_head(&head, host),
        &shared.settings.domains,
    )
    .map_err(|error| Error::refused_because(error.code, error.message))?;
    exchange.is_about(&operation);

    // A form brings its proof and its key in its body, so it walks these steps in another order.
    if let Operation::PostObject(bucket) = operation {
        return Box::pin(post_object::answer(exchange, head, bucket, body)).await;
    }

    // Proves who asks.
    let proof = authenticate::prove(&connection, &head, host)?;
    exchange.is_from(&proof.identity);

    // Decides before any layer, so on cache hits as well.
    authorize::request(&connection, &head, host, &operation, &proof)?;

    // Takes the body in: bounded, decoded, verified while it passes.
    let request = take_in(exchange, head, operation, proof, body).await?;

    // The first route for the bucket answers.
    call_store(&connection, request).await
}

/// Makes the request that stores see.
async fn take_in(
    exchange: &Exchange,
    mut head: Parts,
    operation: Operation,
    mut proof: Proof,
    unread: Unread,
) -> Result<Request, Error> {
    let connection = exchange.connection();
    let name = operation.name();
    let query = headers::query(&head);
    let payload_sha256 = proof.payload_sha256();
    let mut body = if unread.is_empty() && !upload::is_expected(name) {
        upload::check_absent(payload_sha256)?;
        Body::empty()
    } else {
        let chunk_signer = proof.chunk_signer.take();
        // Boxed, so that requests without a body do not carry its state around.
        Box::pin(upload::take(
            unread,
            &mut head,
            name,
            proof.payload,
            chunk_signer,
            connection,
        ))
        .await?
    };
    if let Operation::DeleteObjects(bucket) = &operation {
        let authorized = delete_objects::authorized(connection, &head, &proof, bucket, body);
        body = Box::pin(authorized).await?;
    }
    headers::strip(&mut head.headers);
    let caller = exchange.caller(proof.identity, body.length());
    let (method, headers) = (head.method, head.headers);
    Ok(Request {
        operation,
        method,
        headers,
        query,
        body,
        payload_sha256,
        caller,
    })
}

/// Routes a request and waits for its answer until its deadline.
async fn call_store(connection: &Connection, request: Request) -> Result<Response, Error> {
    let shared = &connection.worker.shared;
    let Some(store) = shared.routes.store_for(request.operation.bucket()) else {
        return Err(Error::refused(match request.operation.name() {
            OperationName::CreateBucket => Code::AccessDenied,
            _ => Code::NoSuchBucket,
        }));
    };
    let deadline = request.caller.deadline;
    limits::until(deadline, &shared.clock, store.call(request)).await
}
