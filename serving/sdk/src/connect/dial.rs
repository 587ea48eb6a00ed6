//! Making a connection: a seam, so that simulations put duplex pipes or a simulated network in its place.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A byte stream to a broker.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Transport for T {}

/// What [`Connect::connect`] answers.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>>;

/// Makes connections. One call per attempt; waiting between attempts is the SDK's.
pub trait Connect: Send + Sync + 'static {
    /// Connects to `authority`, which is `host:port`.
    ///
    /// # Errors
    /// Whatever the network says; each error is retried with back-off. Dropping the future gives the attempt up.
    fn connect(&self, authority: &str) -> Connecting;
}

/// Plain TCP without Nagle's delay.
///
/// A dial to a port of the ephemeral range on this machine may be given that very port as its source while nobody listens: TCP
/// then connects the socket to itself, the client talks to its own echo, and the server cannot bind its port. Such a
/// connection is reset at once, so that the port is free without a wait, and counts as refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpConnect;

impl Connect for TcpConnect {
    fn connect(&self, authority: &str) -> Connecting {
        let authority = authority.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(authority).await?;
            if is_own_peer(&stream)? {
                stream.set_zero_linger()?;
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionRefused,
                    "nobody listens there; the connection had reached itself",
                ));
            }
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Transport>)
        })
    }
}

fn is_own_peer(stream: &TcpStream) -> io::Result<bool> {
    Ok(stream.local_addr()? == stream.peer_addr()?)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    #[tokio::test]
    async fn connection_to_itself_is_recognised() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let own = socket.local_addr().unwrap();
        // A socket that dials the port it is bound to is connected to itself by the kernel.
        let stream = socket.connect(own).await.unwrap();
        assert!(is_own_peer(&stream).unwrap());
    }

    #[tokio::test]
    async fn dial_where_nobody_listens_is_refused_and_leaves_the_port_free() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        for _ in 0..100 {
            let Err(error) = TcpConnect.connect(&address.to_string()).await else {
                panic!("nobody listens at {address}");
            };
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        tokio::net::TcpListener::bind(address).await.unwrap();
    }
}
