//! The seam to the simulated network: connections that callers make, and those that a bookie takes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;
use turmoil::net::{TcpListener, TcpStream};

use crate::remote::{Connect, Connecting, Transport};

/// Where bookies listen.
pub(super) const PORT: u16 = 7410;

/// Connects over the simulated network, and counts its dials.
#[derive(Clone, Default)]
pub(super) struct SimConnect(pub(super) Arc<AtomicUsize>);

impl Connect for SimConnect {
    fn connect(&self, authority: &str) -> Connecting {
        self.0.fetch_add(1, Ordering::Relaxed);
        let authority = authority.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(authority).await?;
            Ok(Box::new(stream) as Box<dyn Transport>)
        })
    }
}

/// The bookie's end of a connection; counted while it is open.
pub(super) struct Accepted {
    stream: TcpStream,
    open: Arc<AtomicUsize>,
}

impl Drop for Accepted {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connections that a bookie takes.
pub(super) fn incoming(
    listener: TcpListener,
    open: Arc<AtomicUsize>,
) -> impl Stream<Item = io::Result<Accepted>> {
    futures::stream::unfold(listener, move |listener| {
        let open = Arc::clone(&open);
        async move {
            let accepted = listener.accept().await.map(|(stream, _)| {
                open.fetch_add(1, Ordering::Relaxed);
                Accepted { stream, open }
            });
            Some((accepted, listener))
        }
    })
}

impl Connected for Accepted {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
