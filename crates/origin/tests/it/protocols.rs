//! HTTP/2 without and with TLS, and TLS under HTTP/1.1.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use forebay_origin::{OriginSettings, PayloadSigning, Protocol};
use forebay_store::{
    Body, Error,
    contract::requests::{get, put},
};
use http::{Request, Response, Version};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::mpsc,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use crate::scripted::{PIECE, failure, fed, settings, store};

/// What the origin has to say of each request's body: its bytes, or that it broke off.
type Heard = mpsc::UnboundedReceiver<(Version, Option<usize>)>;

struct Origin {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    heard: Mutex<Heard>,
    task: JoinHandle<()>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Origin {
    /// An origin that reads each body and answers with 100,000 bytes.
    async fn new(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (told, heard) = mpsc::unbounded_channel();
        let task = tokio::spawn({
            let connections = Arc::clone(&connections);
            async move {
                let mut running = tokio::task::JoinSet::new();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    connections.fetch_add(1, Ordering::SeqCst);
                    let (tls, told) = (tls.clone(), told.clone());
                    running.spawn(async move {
                        match tls {
                            None => serve(stream, told).await,
                            Some(tls) => {
                                if let Ok(stream) = tls.accept(stream).await {
                                    serve(stream, told).await;
                                }
                            }
                        }
                    });
                }
            }
        });
        Self {
            address,
            connections,
            heard: Mutex::new(heard),
            task,
        }
    }

    fn settings(&self, scheme: &str, protocol: Protocol) -> OriginSettings {
        let mut settings = settings(&format!("{scheme}://localhost:{}", self.address.port()));
        settings.protocol = protocol;
        settings
    }

    async fn heard(&self) -> (Version, Option<usize>) {
        std::future::poll_fn(|cx| self.heard.lock().unwrap().poll_recv(cx))
            .await
            .unwrap()
    }
}

async fn serve<S>(stream: S, told: mpsc::UnboundedSender<(Version, Option<usize>)>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let told = told.clone();
        async move {
            let version = request.version();
            assert_eq!(request.uri().path(), "/bucket/k");
            if request.headers().contains_key("x-refuse") {
                // Holds the body without reading it, so that nothing resets the stream.
                tokio::spawn(async move {
                    let _request = request;
                    std::future::pending::<()>().await;
                });
                let refusal = Response::builder().status(403).body(Body::from("<Error/>"));
                return Ok::<_, Infallible>(refusal.unwrap());
            }
            let body = Body::stream(Mapped(request.into_body()));
            let length = body
                .collect(1 << 30)
                .await
                .ok()
                .map(|(bytes, _)| bytes.len());
            told.send((version, length)).unwrap();
            Ok(Response::new(Body::from(Bytes::from(vec![7; 100_000]))))
        }
    });
    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    // How a connection ends is the client's affair.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// hyper's body with the frame's error.
struct Mapped(Incoming);

impl http_body::Body for Mapped {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Error>>> {
        std::pin::Pin::new(&mut self.0)
            .poll_frame(cx)
            .map_err(|error| Error::internal("read", error))
    }
}

#[tokio::test]
async fn http2_without_tls_shares_one_connection() {
    let origin = Origin::new(None).await;
    let store = Arc::new(store(&origin.settings("http", Protocol::Http2)));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let store = Arc::clone(&store);
        all.spawn(async move {
            put("bucket", "k")
                .body(vec![1; 70_000])
                .expect(200, &store)
                .await
        });
    }
    for answer in all.join_all().await {
        assert_eq!(answer.body.len(), 100_000);
    }
    for _ in 0..20 {
        assert_eq!(origin.heard().await, (Version::HTTP_2, Some(70_000)));
    }
    assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn http2_connections_carry_as_many_streams_as_allowed() {
    let origin = Origin::new(None).await;
    let mut settings = origin.settings("http", Protocol::Http2);
    settings.pool.streams_max = 2;
    let store = store(&settings);
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(get("bucket", "k").call(&store).await.unwrap());
    }
    assert_eq!(origin.connections.load(Ordering::SeqCst), 3);
    drop(held);
    get("bucket", "k").expect(200, &store).await;
    assert_eq!(origin.connections.load(Ordering::SeqCst), 3);
}

/// Goal: over HTTP/2 a client gone in mid-upload resets its stream and leaves the others alone.
#[tokio::test]
async fn an_abandoned_upload_resets_its_stream_only() {
    for how in ["the body ends in an error", "the request is dropped"] {
        let origin = Origin::new(None).await;
        let store = Arc::new(store(&origin.settings("http", Protocol::Http2)));
        let (feed, body) = fed(100_000);
        let sending = tokio::spawn({
            let store = Arc::clone(&store);
            async move { put("bucket", "k").body(body).send(&store).await }
        });
        feed.data(vec![1; 50_000]).await;
        // The second is taken when the first is on its way.
        feed.data(vec![1; 1]).await;
        feed.data(vec![1; 1]).await;
        if how == "the request is dropped" {
            sending.abort();
            feed.dropped().await;
        } else {
            feed.error(Error::ClientGone).await;
            let error = failure(sending.await.unwrap());
            assert!(matches!(error, Error::ClientGone), "{error:?}");
        }
        assert_eq!(origin.heard().await, (Version::HTTP_2, None), "{how}");
        get("bucket", "k").expect(200, &store).await;
        assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn an_early_refusal_over_http2_ends_the_upload() {
    let origin = Origin::new(None).await;
    let store = store(&origin.settings("http", Protocol::Http2));
    let (feed, body) = fed(1 << 30);
    let watch = feed.clone();
    let feeding = tokio::spawn(async move { while feed.data(Bytes::from_static(&PIECE)).await {} });
    let sending = put("bucket", "k").header("x-refuse", "1").body(body);
    let answer = sending.expect(403, &store).await;
    assert_eq!(answer.text(), "<Error/>");
    watch.dropped().await;
    feeding.await.unwrap();
    get("bucket", "k").expect(200, &store).await;
    assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
}

/// A certificate for `localhost`, in a file for the client and with its key for the server.
fn tls(folder: &Path, protocols: &[&str]) -> (std::path::PathBuf, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let path = folder.join("ca.pem");
    std::fs::write(&path, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(made.cert)], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    (path, TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn tls_carries_both_versions_and_payloads_go_unsigned() {
    let folder = tempfile::tempdir().unwrap();
    for (protocol, version) in [
        (Protocol::Http1, Version::HTTP_11),
        (Protocol::Http2, Version::HTTP_2),
    ] {
        let (ca_file, acceptor) = tls(folder.path(), &["h2", "http/1.1"]);
        let origin = Origin::new(Some(acceptor)).await;
        let mut settings = origin.settings("https", protocol);
        settings.ca_file = Some(ca_file);
        settings.payload_signing = PayloadSigning::Auto;
        let store = store(&settings);
        for _ in 0..3 {
            let answer = put("bucket", "k")
                .body(vec![1; 70_000])
                .expect(200, &store)
                .await;
            assert_eq!(answer.body.len(), 100_000);
            // Unsigned: the length on the wire is the payload's own.
            assert_eq!(origin.heard().await, (version, Some(70_000)));
        }
        assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn an_untrusted_certificate_or_no_tls_at_all_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let (_, acceptor) = tls(folder.path(), &[]);
    let origin = Origin::new(Some(acceptor)).await;
    let (other_ca, _) = tls(folder.path(), &[]);
    let mut settings = origin.settings("https", Protocol::Http1);
    settings.ca_file = Some(other_ca.clone());
    let error = failure(get("bucket", "k").send(&store(&settings)).await);
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");

    let plain = Origin::new(None).await;
    let mut settings = plain.settings("https", Protocol::Http1);
    settings.ca_file = Some(other_ca);
    settings.timeouts.connect = Duration::from_millis(500);
    let error = failure(get("bucket", "k").send(&store(&settings)).await);
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn an_origin_without_http2_is_unavailable_over_http2() {
    let folder = tempfile::tempdir().unwrap();
    let (ca_file, acceptor) = tls(folder.path(), &[]);
    let origin = Origin::new(Some(acceptor)).await;
    let mut settings = origin.settings("https", Protocol::Http2);
    settings.ca_file = Some(ca_file);
    let error = failure(get("bucket", "k").send(&store(&settings)).await);
    assert!(
        error.to_string().contains("does not speak HTTP/2"),
        "{error}"
    );
}
