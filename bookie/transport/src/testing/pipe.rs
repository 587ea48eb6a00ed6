//! One connection, which can be frozen and cut.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tonic::transport::server::Connected;

/// What happens to the bytes of all connections of a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Weather {
    /// They go through.
    #[default]
    Fair,
    /// They are held, and nobody is told.
    Frozen,
}

#[derive(Default)]
struct State {
    weather: Weather,
    /// Connections with a number below this are cut.
    cut_below: u64,
    dialled: u64,
    wakers: Vec<Waker>,
}

/// What the connections of one wire share.
#[derive(Clone, Default)]
pub(super) struct Switch(Arc<Mutex<State>>);

impl Switch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn set(&self, weather: Weather) {
        self.change(|state| state.weather = weather);
    }

    pub(super) fn cut(&self) {
        self.change(|state| state.cut_below = state.dialled + 1);
    }

    pub(super) fn dialled(&self) -> u64 {
        self.lock().dialled
    }

    /// A new connection over it.
    pub(super) fn join(&self, stream: DuplexStream) -> Pipe {
        let mut state = self.lock();
        state.dialled += 1;
        Pipe {
            stream,
            switch: self.clone(),
            number: state.dialled,
        }
    }
}

/// The callers' end of a connection.
pub struct Pipe {
    stream: DuplexStream,
    switch: Switch,
    number: u64,
}

impl Pipe {
    fn may_pass(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.switch.lock();
        // Kept in any case: bytes that are waited for must hear of a cut.
        state.wakers.push(cx.waker().clone());
        if self.number < state.cut_below {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        match state.weather {
            Weather::Fair => Poll::Ready(Ok(())),
            Weather::Frozen => Poll::Pending,
        }
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        futures::ready!(self.may_pass(cx))?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        futures::ready!(self.may_pass(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        futures::ready!(self.may_pass(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The bookie's end.
pub(super) struct Accepted(pub(super) DuplexStream);

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
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
