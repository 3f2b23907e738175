//! TLS listeners: certificates that change without a restart, and the socket under them.
//!
//! The files are read again when their modification time or size changes. New connections get the
//! new certificate; those that are open keep theirs. A pair that cannot be used is reported and
//! the one in use stays.

use std::{
    fs, io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::SystemTime,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::ProducesTickets,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;

use super::pulse::Pulse;
use crate::settings::TlsPaths;

/// Protocols offered by ALPN, the preferred one first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is unreadable or not PEM.
    #[error("read {path}: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// What was found.
        reason: String,
    },
    /// The certificate and the key do not go together, or no provider can use them.
    #[error("use certificate {certificate}: {reason}")]
    Unusable {
        /// The certificate's file.
        certificate: String,
        /// What rustls says.
        reason: rustls::Error,
    },
}

/// The certificate of a listener, as it is now.
#[derive(Debug)]
pub(crate) struct Certificate {
    paths: TlsPaths,
    current: ArcSwap<ServerConfig>,
    seen: Mutex<Seen>,
    /// Kept over reloads, so that sessions are resumed across them.
    tickets: Arc<dyn ProducesTickets>,
}

/// What the two files looked like when they were last read.
type Seen = [Option<(SystemTime, u64)>; 2];

/// Whether files were read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reload {
    /// They are as they were.
    Unchanged,
    /// The new certificate is in use.
    Done,
}

impl Certificate {
    pub(crate) fn load(paths: TlsPaths) -> Result<Self, TlsError> {
        let seen = look(&paths);
        let tickets = rustls::crypto::aws_lc_rs::Ticketer::new()
            .map_err(|source| unusable(&paths, source))?;
        let current = ArcSwap::from_pointee(read(&paths, &tickets)?);
        Ok(Self {
            paths,
            current,
            seen: Mutex::new(seen),
            tickets,
        })
    }

    /// Reads the files again if they have changed. Blocks on the disk.
    pub(crate) fn reload(&self) -> Result<Reload, TlsError> {
        let now = look(&self.paths);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now {
            return Ok(Reload::Unchanged);
        }
        // Seen even when it cannot be used: one report a change is enough.
        *seen = now;
        self.current
            .store(Arc::new(read(&self.paths, &self.tickets)?));
        Ok(Reload::Done)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.load_full())
    }

    pub(crate) fn path(&self) -> std::path::Display<'_> {
        self.paths.certificate.display()
    }
}

fn look(paths: &TlsPaths) -> Seen {
    [&paths.certificate, &paths.key].map(|path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
}

fn read(paths: &TlsPaths, tickets: &Arc<dyn ProducesTickets>) -> Result<ServerConfig, TlsError> {
    let unreadable =
        |path: &std::path::Path, error: rustls::pki_types::pem::Error| TlsError::Unreadable {
            path: path.display().to_string(),
            reason: error.to_string(),
        };
    let chain = CertificateDer::pem_file_iter(&paths.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(&paths.certificate, error))?;
    if chain.is_empty() {
        return Err(TlsError::Unreadable {
            path: paths.certificate.display().to_string(),
            reason: "no certificate in it; PEM is wanted".to_owned(),
        });
    }
    let key =
        PrivateKeyDer::from_pem_file(&paths.key).map_err(|error| unreadable(&paths.key, error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|source| unusable(paths, source))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|source| unusable(paths, source))?;
    config.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
    config.ticketer = Arc::clone(tickets);
    Ok(config)
}

fn unusable(paths: &TlsPaths, reason: rustls::Error) -> TlsError {
    TlsError::Unusable {
        certificate: paths.certificate.display().to_string(),
        reason,
    }
}

/// A TLS stream that notes its signs of life.
#[derive(Debug)]
pub(crate) struct TlsSocket<S> {
    stream: S,
    pulse: Arc<Pulse>,
}

impl<S> TlsSocket<S> {
    pub(crate) fn new(stream: S, pulse: Arc<Pulse>) -> Self {
        Self { stream, pulse }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TlsSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.pulse.read();
        Poll::Ready(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TlsSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.note(result.map_ok(|()| 0)).map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S> TlsSocket<S> {
    fn note(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &result {
            Poll::Pending => self.pulse.write_is_blocked(),
            Poll::Ready(Ok(bytes)) => self.pulse.wrote(*bytes),
            Poll::Ready(Err(_)) => {}
        }
        result
    }
}
