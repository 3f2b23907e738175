//! Connections in use: HTTP/1.1, driven by the request that uses it, and HTTP/2, by a task.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{task::JoinHandle, time::Instant};

use crate::connect::{H1Connection, H1Sender, H2Sender};

/// An HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct Http1 {
    pub(crate) sender: H1Sender,
    pub(crate) driver: Driver,
}

/// The half of a connection that reads and writes, driven by whoever polls it.
#[derive(Debug)]
pub(crate) enum Driver {
    Open(Box<H1Connection>),
    Ended,
}

/// An HTTP/2 connection; ends when dropped.
#[derive(Debug)]
pub(crate) struct Http2 {
    pub(crate) sender: H2Sender,
    pub(crate) streams: Arc<AtomicUsize>,
    pub(crate) used: Instant,
    pub(crate) driver: JoinHandle<()>,
}

/// The right to one stream of an HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct Http2Stream {
    pub(crate) sender: H2Sender,
    count: Arc<AtomicUsize>,
}

impl Driver {
    /// Moves bytes in both directions: `Ready` when the connection has ended, well or not; what
    /// that means for a request, its answer tells.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Open(connection) => {
                if let Err(error) = ready!(Pin::new(&mut **connection).poll(cx)) {
                    tracing::debug!(%error, "connection to the origin failed");
                }
                *self = Self::Ended;
                Poll::Ready(())
            }
            Self::Ended => Poll::Ready(()),
        }
    }
}

impl Http1 {
    /// Whether it is open and has nothing more to send or to receive.
    pub(crate) fn is_idle(&mut self, cx: &mut Context<'_>) -> bool {
        self.driver.poll(cx).is_pending() && self.sender.is_ready()
    }
}

impl Http2 {
    pub(crate) fn stream(&self) -> Http2Stream {
        self.streams.fetch_add(1, Ordering::Relaxed);
        Http2Stream {
            sender: self.sender.clone(),
            count: Arc::clone(&self.streams),
        }
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
