//! The tap's own address: counts to read, faults to set.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | the counts, as JSON |
//! | `GET /faults` | the faults as they were last set by text |
//! | `PUT /faults` | replaces all faults with those of the JSON in the body |
//!
//! A request a connection: for people with curl and for tests, so nothing is kept open. Limits: 16
//! connections at a time, heads of 8 KiB, bodies of 64 KiB, 10 s.

use std::{io, sync::Arc, time::Duration};

use serde::Serialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{Shared, counts::Counts, faults::FaultTexts, faults::Faults};

const CONNECTIONS_MAX: usize = 16;
const HEAD_BYTES_MAX: usize = 8 * 1024;
const BODY_BYTES_MAX: usize = 64 * 1024;
const TIMEOUT: Duration = Duration::from_secs(10);

/// What `GET /` and `--out` tell.
#[derive(Debug, Serialize)]
pub(super) struct Status<'a> {
    pub(super) to: &'a str,
    pub(super) seed: u64,
    #[serde(flatten)]
    pub(super) counts: Counts,
}

/// Answers until it is aborted.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        if connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    let answered = answer(client, Arc::clone(&shared));
                    connections.spawn(tokio::time::timeout(TIMEOUT, answered));
                }
                Err(_) => tokio::time::sleep(super::ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(mut client: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let (status, text) = match read(&mut client).await? {
        Some(request) => respond(&request, &shared),
        None => ("400 Bad Request", "not a request of HTTP/1.1\n".to_owned()),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        if status == "200 OK" {
            "application/json"
        } else {
            "text/plain; charset=utf-8"
        },
        text.len()
    );
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await
}

struct Request {
    method: String,
    target: String,
    body: Vec<u8>,
}

/// Reads a request; `None` when it is none, or beyond the limits.
async fn read(client: &mut TcpStream) -> io::Result<Option<Request>> {
    let mut input = Vec::new();
    let (head_bytes, body_bytes, method, target) = loop {
        if client.read_buf(&mut input).await? == 0 || input.len() > HEAD_BYTES_MAX + BODY_BYTES_MAX
        {
            return Ok(None);
        }
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Request::new(&mut fields);
        match head.parse(&input) {
            Ok(httparse::Status::Complete(head_bytes)) => {
                let length = head
                    .headers
                    .iter()
                    .find(|field| field.name.eq_ignore_ascii_case("content-length"))
                    .and_then(|field| std::str::from_utf8(field.value).ok()?.parse().ok());
                let method = head.method.unwrap_or_default().to_owned();
                let target = head.path.unwrap_or_default().to_owned();
                break (head_bytes, length.unwrap_or(0), method, target);
            }
            Ok(httparse::Status::Partial) if input.len() <= HEAD_BYTES_MAX => {}
            Ok(httparse::Status::Partial) | Err(_) => return Ok(None),
        }
    };
    if body_bytes > BODY_BYTES_MAX {
        return Ok(None);
    }
    while input.len() < head_bytes + body_bytes {
        if client.read_buf(&mut input).await? == 0 {
            return Ok(None);
        }
    }
    let body = input[head_bytes..head_bytes + body_bytes].to_vec();
    Ok(Some(Request {
        method,
        target,
        body,
    }))
}

fn respond(request: &Request, shared: &Shared) -> (&'static str, String) {
    match (request.method.as_str(), request.target.as_str()) {
        ("GET", "/") => json(&Status {
            to: &shared.to,
            seed: shared.seed,
            counts: shared.counters.read(),
        }),
        ("GET", "/faults") => json(&*shared.texts.read()),
        ("PUT", "/faults") => match set_faults(&request.body, shared) {
            Ok(texts) => json(&texts),
            Err(fault) => ("400 Bad Request", format!("{fault}\n")),
        },
        _ => {
            let text = "nothing here: GET /, GET /faults, PUT /faults\n";
            ("404 Not Found", text.to_owned())
        }
    }
}

fn set_faults(body: &[u8], shared: &Shared) -> Result<FaultTexts, String> {
    let texts: FaultTexts = serde_json::from_slice(body).map_err(|error| {
        format!("{error}; faults are a JSON object of texts, such as {{\"busy\": \"5%\"}}")
    })?;
    let faults = Faults::check(&texts, "the faults").map_err(|faulty| faulty.to_string())?;
    shared.set_faults(faults);
    *shared.texts.write() = texts.clone();
    Ok(texts)
}

fn json<T: Serialize>(value: &T) -> (&'static str, String) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => ("200 OK", text + "\n"),
        Err(error) => ("500 Internal Server Error", format!("{error}\n")),
    }
}
