//! Accepts connections: with TCP_NODELAY, not more than so many at once, and never so that an error ends the listener.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Connections at once; more wait in the operating system's queue.
const CONNECTIONS_MAX: usize = 10_000;
/// After an error of the listener itself, e.g. no file descriptor left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// A connection and its place among [`CONNECTIONS_MAX`].
pub(crate) struct Connection {
    socket: TcpStream,
    /// Held for its drop.
    _place: OwnedSemaphorePermit,
}

/// Connections as they come. Never ends.
pub(crate) fn accept(listener: TcpListener) -> impl Stream<Item = io::Result<Connection>> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    futures::stream::unfold((listener, places), async |(listener, places)| {
        let place = places.clone().acquire_owned().await;
        let place = place.expect("this semaphore is never closed");
        let socket = next_socket(&listener).await;
        Some((
            Ok(Connection {
                socket,
                _place: place,
            }),
            (listener, places),
        ))
    })
}

async fn next_socket(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            // The server's own option does not reach accepted sockets (dependencies.md §1.5). A socket that refuses it is dead.
            Ok((socket, _)) if socket.set_nodelay(true).is_ok() => return socket,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.socket.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
