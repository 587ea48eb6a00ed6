//! Making a connection: a seam, so that simulations put pipes or a simulated network in its place.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A byte stream to a bookie.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Transport for T {}

/// What [`Connect::connect`] answers.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>>;

/// Makes connections. One call per attempt; waiting between attempts is the link's.
pub trait Connect: Send + Sync + 'static {
    /// Connects to `authority`, which is `host:port`.
    ///
    /// # Errors
    /// Whatever the network says. Dropping the future gives the attempt up.
    fn connect(&self, authority: &str) -> Connecting;
}

/// Plain TCP without Nagle's delay. A dial that reaches itself, as the kernel allows on a port of this machine that nobody listens on,
/// counts as refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpConnect;

impl Connect for TcpConnect {
    fn connect(&self, authority: &str) -> Connecting {
        let authority = authority.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(authority).await?;
            if stream.local_addr()? == stream.peer_addr()? {
                stream.set_zero_linger()?;
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Transport>)
        })
    }
}
