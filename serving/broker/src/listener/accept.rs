//! Accepts connections: with TCP_NODELAY, not more than so many at once, none for ever that says nothing, and never so that an error
//! ends the listener. Whoever may connect could otherwise take every file descriptor, of which the bookie needs some.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Connections of gRPC for each one of HTTP/1, so that both together leave files to the bookie.
const HTTP_CONNECTIONS_SHARE: usize = 8;
/// After an error of the listener itself, e.g. no file descriptor left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Such errors are logged at most this often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// Who connects opens HTTP/2 within this time, else the place is given to another; later, keep-alive sees to it.
const OPENING_MAX: Duration = Duration::from_secs(10);
/// Length of what opens HTTP/2.
const OPENING_BYTES: usize = 24;
/// An HTTP/1 connection that sends nothing for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(75);

/// A connection and its place among those that may be open at once.
pub struct Connection {
    socket: TcpStream,
    patience: Option<Patience>,
    /// Held for its drop.
    _place: OwnedSemaphorePermit,
}

/// How long a silent peer is waited for.
struct Patience {
    deadline: Pin<Box<Sleep>>,
    /// Bytes after which the wait is over for good; `None`: each byte begins it anew.
    opening: Option<usize>,
}

impl Patience {
    fn opening() -> Self {
        Self {
            deadline: Box::pin(tokio::time::sleep(OPENING_MAX)),
            opening: Some(OPENING_BYTES),
        }
    }

    fn idle() -> Self {
        Self {
            deadline: Box::pin(tokio::time::sleep(IDLE_MAX)),
            opening: None,
        }
    }

    /// Bytes came; false: nothing is waited for any more.
    fn heard(&mut self, bytes: usize) -> bool {
        match &mut self.opening {
            Some(left) => {
                *left = left.saturating_sub(bytes);
                *left > 0
            }
            None => {
                self.deadline.as_mut().reset(Instant::now() + IDLE_MAX);
                true
            }
        }
    }
}

/// Connections of gRPC as they come, of whatever service, at most `max` at once; more wait in the operating system's queue. Never ends.
pub fn accept(listener: TcpListener, max: usize) -> impl Stream<Item = io::Result<Connection>> {
    let door = Door::new(listener, max);
    futures::stream::unfold(door, async |mut door| {
        let (socket, place) = door.next().await;
        let connection = Connection {
            socket,
            patience: Some(Patience::opening()),
            _place: place,
        };
        Some((Ok(connection), door))
    })
}

/// A listener with a bounded number of places.
pub struct Door {
    listener: TcpListener,
    places: Arc<Semaphore>,
    complained: Option<Instant>,
}

impl Door {
    /// At most `max` connections at once; more wait in the operating system's queue.
    pub fn new(listener: TcpListener, max: usize) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(max)),
            complained: None,
        }
    }

    /// The next connection and its place, which is free again when the permit is dropped. Waits while all are taken; never fails.
    /// Cancel-safe.
    pub async fn next(&mut self) -> (TcpStream, OwnedSemaphorePermit) {
        let place = self.places.clone().acquire_owned().await;
        let place = place.expect("this semaphore is never closed");
        loop {
            match self.listener.accept().await {
                // The server's own option does not reach accepted sockets (dependencies.md §1.5). A socket that refuses it is dead.
                Ok((socket, _)) if socket.set_nodelay(true).is_ok() => return (socket, place),
                Ok(_) => {}
                Err(error) => {
                    if self
                        .complained
                        .is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY)
                    {
                        self.complained = Some(Instant::now());
                        let listener = self.listener.local_addr().ok();
                        tracing::warn!(%error, ?listener, "connections cannot be accepted");
                    }
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }
}

/// The door of HTTP/1.
pub(crate) struct HttpDoor(Door);

impl HttpDoor {
    /// Beside a gRPC listener with `connections_max` places.
    pub(crate) fn new(listener: TcpListener, connections_max: usize) -> Self {
        let max = (connections_max / HTTP_CONNECTIONS_SHARE).max(1);
        Self(Door::new(listener, max))
    }
}

impl axum::serve::Listener for HttpDoor {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let (socket, place) = self.0.next().await;
            // A socket without a peer is dead.
            if let Ok(peer) = socket.peer_addr() {
                let connection = Connection {
                    socket,
                    patience: Some(Patience::idle()),
                    _place: place,
                };
                return (connection, peer);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.listener.local_addr()
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
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(cx, buffer);
        let Some(patience) = &mut self.patience else {
            return polled;
        };
        if polled.is_pending() && patience.deadline.as_mut().poll(cx).is_ready() {
            let why = "the peer was silent for too long";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        let bytes = buffer.filled().len() - before;
        if bytes > 0 && !patience.heard(bytes) {
            self.patience = None;
        }
        polled
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

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn pair() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let peer = TcpStream::connect(address).await.unwrap();
        let mut connections = Box::pin(accept(listener, 1));
        let taken = connections.next().await.unwrap().unwrap();
        tokio::time::pause();
        (peer, taken)
    }

    #[tokio::test]
    async fn peer_that_never_opens_the_protocol_is_cut_off() {
        let (_peer, mut taken) = pair().await;
        let begun = Instant::now();
        let error = taken.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= OPENING_MAX);
    }

    #[tokio::test]
    async fn peer_that_opened_the_protocol_may_be_silent() {
        let (mut peer, mut taken) = pair().await;
        peer.write_all(&[1; OPENING_BYTES]).await.unwrap();
        taken.read_exact(&mut [0; OPENING_BYTES]).await.unwrap();
        let silent = tokio::time::timeout(100 * OPENING_MAX, taken.read_u8()).await;
        assert!(silent.is_err(), "nothing ends it but its keep-alive");
    }
}
