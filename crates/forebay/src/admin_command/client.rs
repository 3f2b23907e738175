//! One request to an admin listener: plain HTTP/1.1, a connection each.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use forebay_gateway::admin::messages::{API, ErrorAnswer};
use forebay_store::Body;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::{net::TcpStream, time::timeout};

use super::{arguments::ServerArguments, faulty};

pub(super) use http::Method;

/// Time for an answer; a change is answered after a second, done or not.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of an answer: a `top` of 1000 objects with keys of 1 KiB is a little over 1 MiB.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The variable that holds the token, where no file is named.
const TOKEN_VARIABLE: &str = "FOREBAY_ADMIN_TOKEN";

/// Where to ask, and as whom.
pub(super) struct Client {
    authority: String,
    address: String,
    token: Option<HeaderValue>,
}

impl Client {
    pub(super) fn new(arguments: &ServerArguments) -> Result<Self> {
        let uri = &arguments.admin;
        let authority = authority_of(uri)?;
        let address = match uri.port() {
            Some(_) => authority.clone(),
            None => format!("{authority}:80"),
        };
        let token = match &arguments.token_file {
            Some(path) => Some(read_token(path)?),
            None => std::env::var(TOKEN_VARIABLE).ok(),
        };
        let token = token.map(|token| bearer(&token)).transpose()?;
        Ok(Self {
            authority,
            address,
            token,
        })
    }

    /// Asks for a path of the API; the body of the answer.
    ///
    /// # Errors
    /// No connection, or what the gateway says is wrong.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let answer = timeout(ANSWER_TIMEOUT, self.exchange(method, path, body)).await;
        let (status, bytes) = answer.map_err(|_| {
            anyhow!(
                "{} did not answer within {ANSWER_TIMEOUT:?}",
                self.authority
            )
        })??;
        if status.is_success() {
            return Ok(bytes);
        }
        let told = serde_json::from_slice::<ErrorAnswer>(&bytes).map(|told| told.error);
        let told = told.unwrap_or_else(|_| format!("{} answered {status}", self.authority));
        if status == StatusCode::UNAUTHORIZED {
            bail!("{told}; name its file with --token-file, or set {TOKEN_VARIABLE}");
        }
        bail!("{told}");
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(StatusCode, Vec<u8>)> {
        let stream = TcpStream::connect(&self.address).await.with_context(|| {
            format!(
                "connect to the admin listener at {}: is the gateway running there? its start \
                 prints the address; name it with --admin URL or FOREBAY_ADMIN",
                self.address
            )
        })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{API}{path}"))
            .header(header::HOST, &self.authority);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(body.map_or_else(Body::empty, Body::from))?;
        let exchange = async {
            let response = sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let bytes = body.map_err(|error| anyhow!("read the answer: {error}"))?;
            Ok((head.status, bytes.to_bytes().to_vec()))
        };
        let mut exchange = std::pin::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            // Once the answer is on its way the connection may end first.
            ended = connection => match ended {
                Ok(()) => exchange.await,
                Err(error) => Err(error).context("talk to the admin listener"),
            },
        }
    }
}

/// Reads an answer.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).context("read the answer: is it a gateway of this version?")
}

fn authority_of(uri: &Uri) -> Result<String> {
    let is_plain = uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/");
    let authority = uri.authority().filter(|_| is_plain);
    let authority = authority.ok_or_else(|| {
        let remedy = "write http://ADDRESS:PORT; for TLS, go through a tunnel or a proxy";
        faulty(
            "--admin",
            &uri.to_string(),
            "an http URL without a path",
            remedy,
        )
    })?;
    Ok(authority.to_string())
}

fn read_token(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("read the token in {}", path.display()))?;
    Ok(text.trim().to_owned())
}

fn bearer(token: &str) -> Result<HeaderValue> {
    let value = HeaderValue::try_from(format!("Bearer {token}"));
    let mut value = value.context("the token has characters that no header can have")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_is_spoken() {
        let authority = |uri: &str| authority_of(&uri.parse().unwrap()).ok();
        assert_eq!(
            authority("http://127.0.0.1:9001").unwrap(),
            "127.0.0.1:9001"
        );
        assert_eq!(authority("http://[::1]:9001/").unwrap(), "[::1]:9001");
        for wrong in ["https://a:9001", "127.0.0.1:9001", "http://a/metrics", "/a"] {
            assert_eq!(authority(wrong), None, "{wrong}");
        }
    }
}
