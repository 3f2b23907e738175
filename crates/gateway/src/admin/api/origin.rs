//! What operators ask of S3 services, and order of their endpoints.

use std::time::Duration;

use bytes::Bytes;
use forebay_origin::operator::UnknownEndpoint;
use forebay_store::Query;
use http::{Method, StatusCode};
use http_body::Body as HttpBody;

use super::{Answer, Api, Failure, json, read};
use crate::admin::{
    Origin,
    messages::{EndpointChoice, OriginsAnswer},
};

/// Time between two looks at an endpoint that is drained.
const LOOK: Duration = Duration::from_millis(50);

/// What becomes of an endpoint at once.
#[derive(Debug, Clone, Copy)]
enum Order {
    Eject,
    Restore,
}

impl Api {
    /// Answers what is about S3 services; `None` when the path is not.
    pub(super) async fn of_origins<B>(
        &self,
        (method, path, query): (&Method, &str, &Query),
        body: B,
    ) -> Option<Answer>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        Some(match (method, path) {
            (&Method::GET, "/origin/status") => self.origins_status(query),
            (&Method::POST, "/origin/eject") => self.order_endpoint(Order::Eject, body).await,
            (&Method::POST, "/origin/restore") => self.order_endpoint(Order::Restore, body).await,
            (&Method::POST, "/origin/drain") => self.drain_endpoint(body).await,
            _ => return None,
        })
    }

    fn origins_status(&self, query: &Query) -> Answer {
        let origins = match query.get("store") {
            None => self.operators.origins.iter().map(Origin::status).collect(),
            Some(name) => vec![self.origin(&name)?.status()],
        };
        Ok(json(StatusCode::OK, &OriginsAnswer { origins }))
    }

    async fn order_endpoint<B>(&self, order: Order, body: B) -> Answer
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let EndpointChoice { store, endpoint } = read(body).await?;
        let origin = self.origin(&store)?;
        match order {
            Order::Eject => origin.operator.eject(&endpoint),
            Order::Restore => origin.operator.restore(&endpoint),
        }
        .map_err(unknown)?;
        tracing::info!(store, endpoint, ?order, "endpoint changed by operator");
        let origins = vec![origin.status()];
        Ok(json(StatusCode::OK, &OriginsAnswer { origins }))
    }

    /// Takes an endpoint out, as a job that ends when nothing is under way there any more.
    async fn drain_endpoint<B>(&self, body: B) -> Answer
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let EndpointChoice { store, endpoint } = read(body).await?;
        let origin = self.origin(&store)?.clone();
        origin.operator.drain(&endpoint).map_err(unknown)?;
        tracing::info!(store, endpoint, "endpoint drained by operator");
        let what = format!("{endpoint} of {store}");
        self.work("origin drain", &what, |_| async move {
            while origin.in_flight(&endpoint) > 0 {
                tokio::time::sleep(LOOK).await;
            }
            let why = "it gets no requests until `origin restore` or the next start";
            Ok(Some(why.to_owned()))
        })
        .await
    }

    fn origin(&self, name: &str) -> Result<&Origin, Failure> {
        let origins = &self.operators.origins;
        let found = origins.iter().find(|origin| origin.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = origins.iter().map(|origin| &*origin.name).collect();
            let why = match names[..] {
                [] => "no store is of type \"s3\"".to_owned(),
                _ => format!(
                    "no store of type \"s3\" is called {name:?}; there are {}",
                    names.join(", ")
                ),
            };
            Failure(StatusCode::NOT_FOUND, why)
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "called by `map_err`")]
fn unknown(error: UnknownEndpoint) -> Failure {
    let why = format!("{error}: `forebay admin origin status` shows their names");
    Failure(StatusCode::NOT_FOUND, why)
}
