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
/// A peer takes what is ready for it within this time, or is given up: what it does not read is in memory until then …
const FLUSH_TIME: Duration = Duration::from_secs(30);
/// … and as long as the bytes take at this rate per second. Clients give a whole answer some 30 seconds themselves.
const FLUSH_RATE_MIN: usize = 256 << 10;

/// The sending side of a connection.
#[derive(Default)]
pub(crate) struct Outbox {
    parts: VecDeque<Bytes>,
    bytes: usize,
    rooms: VecDeque<Room>,
}

/// The room of an answer.
struct Room {
    /// How many bytes are left when it is written.
    left: usize,
    _permit: OwnedSemaphorePermit,
}

impl Outbox {
    /// Puts an answer behind the others.
    pub(crate) fn push(&mut self, answer: Answer) {
        let bytes = answer.len();
        self.bytes += bytes;
        for room in &mut self.rooms {
            room.left += bytes;
        }
        self.parts
            .extend(answer.parts.into_iter().filter(|part| !part.is_empty()));
        let permits = answer.room.into_iter().chain(answer.rows);
        self.rooms.extend(permits.map(|permit| Room {
            left: 0,
            _permit: permit,
        }));
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Writes everything. Rooms are given back as their answers are written.
    ///
    /// # Errors
    /// The connection broke, or `TimedOut`: the peer does not take it.
    pub(crate) async fn flush<W: AsyncWrite + Unpin>(&mut self, writer: &mut W) -> io::Result<()> {
        let slack = Duration::from_secs((self.bytes / FLUSH_RATE_MIN) as u64);
        let flushed = tokio::time::timeout(FLUSH_TIME + slack, self.write_all(writer)).await;
        flushed.unwrap_or_else(|_| Err(stalled()))
    }

    async fn write_all<W: AsyncWrite + Unpin>(&mut self, writer: &mut W) -> io::Result<()> {
        while !self.parts.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                *slice = IoSlice::new(part);
                count += 1;
            }
            let written = writer.write_vectored(&slices[..count]).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.advance(written);
        }
        writer.flush().await
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while self
            .rooms
            .front()
            .is_some_and(|room| room.left >= self.bytes)
        {
            self.rooms.pop_front();
        }
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
