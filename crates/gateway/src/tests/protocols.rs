//! HTTP/2, TLS, and bytes that leave by sendfile.

use std::{collections::VecDeque, path::Path, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_pages::{Arena, ArenaKind, locate};
use forebay_store::{Body, Error, Request, Response, Store};
use http::StatusCode;
use http_body::Body as HttpBody;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::net::TcpStream;

use super::harness::{Ask, Edge, settings};
use crate::settings::TlsPaths;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// Sends requests over HTTP/2 on one connection; status and body of each.
async fn over_h2<S>(io: S, asks: &[Ask]) -> Vec<(u16, Vec<u8>)>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(io))
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    let mut replies = Vec::new();
    for ask in asks {
        let uri = format!("http://{}{}", ask.host, ask.target);
        let mut request = http::Request::new(Body::from(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = uri.parse().unwrap();
        *request.headers_mut() = ask.headers.clone();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        let mut frame =
            async || std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await;
        while let Some(frame) = frame().await {
            bytes.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
        }
        replies.push((status, bytes));
    }
    drop(sender);
    driver.await.unwrap().unwrap();
    replies
}

#[test]
fn http2_with_prior_knowledge_is_spoken_on_a_plain_port() {
    let edge = Edge::start();
    let bytes = vec![7; 300_000];
    let mut asks = [
        Ask::put("/open/key", bytes.clone()).signed_by("ann"),
        Ask::get("/open/key").signed_by("ann"),
        Ask::get("/open/key"),
    ];
    for ask in &mut asks {
        ask.sign(&edge);
    }
    let replies =
        block_on(async { over_h2(TcpStream::connect(edge.address).await.unwrap(), &asks).await });
    let statuses: Vec<_> = replies.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 403]);
    assert!(replies[1].1 == bytes);
}

/// Writes a certificate and key for `localhost`; the certificate.
fn write_certificate(directory: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(directory.join("cert.pem"), made.cert.pem()).unwrap();
    CertificateDer::from_pem_file(directory.join("cert.pem")).unwrap()
}

/// A TLS connection that trusts this certificate alone.
async fn tls(
    edge: &Edge,
    certificate: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(edge.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

#[test]
fn tls_speaks_what_alpn_says_and_takes_new_certificates() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let directory = tempfile::tempdir().unwrap();
    let first = write_certificate(directory.path());
    let mut settings = settings();
    settings.listeners[0].tls = Some(TlsPaths {
        certificate: directory.path().join("cert.pem"),
        key: directory.path().join("key.pem"),
    });
    let edge = Edge::start_with(settings);
    let bytes = vec![7; 200_000];
    edge.store.put("key", bytes.clone());
    block_on(async {
        let stream = tls(&edge, &first, &[b"h2"]).await.unwrap();
        let replies = over_h2(stream, &[Ask::get("/public/key")]).await;
        assert_eq!(replies, [(200, bytes)]);
        let mut stream = tls(&edge, &first, &[]).await.unwrap();
        let text = "GET /public/none HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 404"), "{reply}");

        let second = write_certificate(directory.path());
        edge.running.reload_certificates().unwrap();
        assert!(tls(&edge, &second, &[]).await.is_ok());
        assert!(tls(&edge, &first, &[]).await.is_err());
        std::fs::write(directory.path().join("cert.pem"), "nonsense").unwrap();
        assert!(edge.running.reload_certificates().is_err());
        assert!(
            tls(&edge, &second, &[]).await.is_ok(),
            "the certificate in use stays"
        );
    });
}

/// Gives pages of an arena, as a cache does.
struct Pages(Vec<Bytes>);

#[async_trait]
impl Store for Pages {
    async fn call(&self, _: Request) -> Result<Response, Error> {
        let pieces: VecDeque<Bytes> = self.0.iter().cloned().collect();
        Ok(Response::new(StatusCode::OK).with_body(Body::pieces(pieces)))
    }
}

#[test]
fn pages_of_an_arena_arrive_byte_for_byte() {
    let arena = Arena::new(64 * 1024 * 1024).unwrap();
    let page = |seed: u8, length: usize| {
        let bytes: Bytes = (0..length)
            .map(|i| seed ^ (i / 7).to_le_bytes()[0])
            .collect();
        arena.store(&[bytes]).unwrap()
    };
    let pages = vec![
        page(1, 1 << 20),
        page(2, 1 << 20),
        page(3, 100_000),
        page(4, 333),
    ];
    let whole = pages.concat();
    if arena.kind() == ArenaKind::File {
        assert!(
            locate(&pages[0]).is_some(),
            "sendfile is what this test is about"
        );
    }
    let edge = Edge::start_over(settings(), Arc::new(Pages(pages)), Arc::default());
    let mut client = edge.connect();
    for _ in 0..20 {
        let reply = client.send(&Ask::get("/public/key").bytes(&edge));
        assert!(reply.status == 200 && reply.body == whole);
    }
}
