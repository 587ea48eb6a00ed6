//! Writes answers: what is ready together goes out together, and a peer that does not take it is given up.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;

use super::answer::Answer;

/// Runs of bytes given to the operating system at once.
const SLICES_MAX: usize = 64;
/// A peer that takes no byte for this long is gone. What it did not read is in memory until then.
const STALL_MAX: Duration = Duration::from_secs(30);

/// The sending side of a connection.
#[derive(Default)]
pub(crate) struct Outbox {
    parts: VecDeque<Bytes>,
    bytes: usize,
    rooms: Vec<OwnedSemaphorePermit>,
}

impl Outbox {
    /// Puts an answer behind the others.
    pub(crate) fn push(&mut self, answer: Answer) {
        self.bytes += answer.len();
        self.parts
            .extend(answer.parts.into_iter().filter(|part| !part.is_empty()));
        self.rooms.extend(answer.room);
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Writes everything.
    ///
    /// # Errors
    /// The connection broke, or `TimedOut`: the peer does not take it.
    pub(crate) async fn flush<W: AsyncWrite + Unpin>(&mut self, writer: &mut W) -> io::Result<()> {
        while !self.parts.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                *slice = IoSlice::new(part);
                count += 1;
            }
            let writing = writer.write_vectored(&slices[..count]);
            let written = match tokio::time::timeout(STALL_MAX, writing).await {
                Ok(written) => written?,
                Err(_) => return Err(stalled()),
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.advance(written);
        }
        self.rooms.clear();
        match tokio::time::timeout(STALL_MAX, writer.flush()).await {
            Ok(flushed) => flushed,
            Err(_) => Err(stalled()),
        }
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(front) = self.parts.front_mut() {
            if front.len() > written {
                front.advance(written);
                return;
            }
            written -= front.len();
            self.parts.pop_front();
        }
    }
}

fn stalled() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "the peer does not take its answers",
    )
}
