//! Opens sockets: the machine's, or those of a network that a test simulates.

use std::{fmt, io, net::SocketAddr, time::Duration};

use async_trait::async_trait;
use tokio::net::TcpStream;

use crate::stream::Tcp;

/// Idle time before TCP asks whether the peer is still there, and between its questions: a dead
/// peer is noticed within a minute.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 4;

/// Opens a socket to an address.
#[async_trait]
pub(crate) trait Dial: fmt::Debug + Send + Sync {
    /// Waits for the peer to accept, without a bound of its own.
    async fn dial(&self, peer: SocketAddr) -> io::Result<Tcp>;
}

/// The machine's network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MachineNetwork;

#[async_trait]
impl Dial for MachineNetwork {
    async fn dial(&self, peer: SocketAddr) -> io::Result<Tcp> {
        let tcp = TcpStream::connect(peer).await?;
        // An option that can't be set costs speed, not correctness.
        let _ = tcp.set_nodelay(true);
        let _ = keep_alive(&tcp);
        Ok(Tcp::Machine(tcp))
    }
}

fn keep_alive(tcp: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_keepidle(tcp, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(tcp, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(tcp, KEEPALIVE_COUNT)?;
    sockopt::set_socket_keepalive(tcp, true)
}
