//! The path of a request, from its head to its answer. Read [`answer`] first: it is the list.
//!
//! ```text
//! begin ─▶ limits ─▶ classify ─▶ authenticate ─▶ authorize ─▶ take the body in ─▶ route ─▶ store
//!                                                                                            │
//! end ◀─ meter, access log ◀─ body leaves ◀─ respond ◀─ (late answer) ◀───────────────────────┘
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
mod late_answer;
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
use upload::{Awaited, Unread};

pub(crate) use exchange::metrics;

/// Serves one request of a connection.
pub(crate) async fn serve(
    connection: Arc<Connection>,
    incoming: http::Request<Incoming>,
) -> Result<http::Response<Sending>, Infallible> {
    let awaited = Awaited::of(&incoming);
    let mut exchange = Exchange::begin(connection, &incoming);
    let result = answer(&mut exchange, incoming).await;
    let mut answer = respond::respond(exchange, result);
    awaited.end(&mut answer);
    Ok(answer)
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
    let request = if body.is_empty() && !upload::is_expected(operation.name()) {
        upload::check_absent(proof.payload_proof())?;
        request_of(exchange, head, operation, proof, Body::empty())
    } else {
        // Boxed, so that requests without a body do not carry its state around.
        Box::pin(take_in(exchange, head, operation, proof, body)).await?
    };

    // The first route for the bucket answers; of what may take minutes, the head leaves first.
    if late_answer::may_be_late(request.operation.name()) {
        return Box::pin(late_answer::call(exchange, request)).await;
    }
    call(&connection, request).await
}

/// Makes the request that stores see, with the body that came. (An exchange may hold a future, so
/// a shared reference to it could not cross threads.)
async fn take_in(
    exchange: &mut Exchange,
    mut head: Parts,
    operation: Operation,
    mut proof: Proof,
    unread: Unread,
) -> Result<Request, Error> {
    let connection = &Arc::clone(exchange.connection());
    let (name, signer) = (operation.name(), proof.chunk_signer.take());
    let mut body = upload::take(unread, &mut head, name, proof.payload, signer, connection).await?;
    if let Operation::DeleteObjects(bucket) = &operation {
        body = delete_objects::authorized(connection, &head, &proof, bucket, body).await?;
    }
    Ok(request_of(exchange, head, operation, proof, body))
}

/// Makes the request that stores see.
fn request_of(
    exchange: &Exchange,
    head: Parts,
    operation: Operation,
    proof: Proof,
    body: Body,
) -> Request {
    let query = headers::query(&head);
    let payload_proof = proof.payload_proof();
    let caller = exchange.caller(proof.identity, body.length());
    let Parts {
        method,
        mut headers,
        ..
    } = head;
    headers::strip(&mut headers);
    Request {
        operation,
        method,
        headers,
        query,
        body,
        payload_proof,
        caller,
    }
}

/// Routes a request and waits for its answer until its deadline.
fn call(
    connection: &Connection,
    request: Request,
) -> impl Future<Output = Result<Response, Error>> + Send + '_ {
    let shared = &connection.worker.shared;
    let deadline = request.caller.deadline;
    let name = request.operation.name();
    let answer = match shared.routes.store_for(request.operation.bucket()) {
        // Called at once, so that the request is in the store's future and not in this one too.
        Some(store) => Ok(store.call(request)),
        None if name == OperationName::CreateBucket => Err(Code::AccessDenied),
        None => Err(Code::NoSuchBucket),
    };
    async move { limits::until(deadline, &shared.clock, answer.map_err(Error::refused)?).await }
}
