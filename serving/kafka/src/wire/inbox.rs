//! Reads frames: four bytes of length, and so many bytes.
//!
//! An idle connection keeps [`HEAD_BYTES`] and nothing else. A frame's length is judged, by the kind of request that it opens with,
//! before there is room for it; the room is the broker's, shared by all listeners; and the frame must be complete in time.
//!
//! Cancel-safe: what was read stays here, also the place in the queue for room.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use kafka_protocol::messages::ApiKey;
use serving_broker::{Front, IngressPermit};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// Read at once while a frame is not known; most requests of an idle consumer fit.
const HEAD_BYTES: usize = 256;
/// Shortest frame: key, version and correlation id.
const FRAME_BYTES_MIN: usize = 8;
/// Longest frame that holds batches (serving.md D2.4). Each batch is judged by itself.
const PRODUCE_BYTES_MAX: usize = 100 << 20;
/// Longest other frame: a hundred thousand partitions.
const OTHER_BYTES_MAX: usize = 8 << 20;
/// Frames without batches up to this are read at once: with all connections together they take no more than some megabytes.
const SMALL_BYTES_MAX: usize = 4 << 10;
/// A frame that has begun is complete within this time …
const FRAME_TIME: Duration = Duration::from_secs(30);
/// … and as long as its bytes take at this rate per second.
const FRAME_RATE_MIN: usize = 64 << 10;

/// A frame without its length.
pub(crate) struct Frame {
    /// What stood behind the length.
    pub(crate) bytes: Bytes,
    /// Given back when the request is answered; small frames have none.
    pub(crate) room: Option<IngressPermit>,
    /// How long the frame waited for room.
    pub(crate) waited: Duration,
}

enum State {
    /// Length and key of a frame are not there yet.
    Opening,
    /// Its length is right and the room for it is asked for.
    Room {
        bytes: usize,
        since: Instant,
        room: BoxFuture<'static, Option<IngressPermit>>,
    },
    /// Its bytes come.
    Body {
        bytes: usize,
        body: BytesMut,
        room: Option<IngressPermit>,
        waited: Duration,
    },
}

/// The receiving side of a connection.
pub(crate) struct Inbox {
    head: [u8; HEAD_BYTES],
    filled: usize,
    state: State,
    /// When the frame that has begun must be complete.
    deadline: Option<Instant>,
}

impl Inbox {
    /// Nothing was read yet.
    pub(crate) fn new() -> Self {
        Self {
            head: [0; HEAD_BYTES],
            filled: 0,
            state: State::Opening,
            deadline: None,
        }
    }

    /// True when a frame has begun, or waits for room.
    pub(crate) fn is_reading(&self) -> bool {
        self.filled > 0 || !matches!(self.state, State::Opening)
    }

    /// The next frame; `None`: the peer has closed, between two frames.
    ///
    /// # Errors
    /// The connection broke; `InvalidData`: a length that no frame has; `TimedOut`: a frame that did not end; `UnexpectedEof`: the
    /// peer closed within one.
    pub(crate) async fn next<R>(
        &mut self,
        reader: &mut R,
        front: &Front,
    ) -> io::Result<Option<Frame>>
    where
        R: AsyncRead + Unpin,
    {
        loop {
            match &mut self.state {
                State::Opening => match self.opening()? {
                    Some(bytes) => {
                        let since = Instant::now();
                        let room = match self.takes_room(bytes) {
                            true => match front.try_room(bytes) {
                                Some(room) => futures::future::ready(Some(room)).boxed(),
                                None => front.room(bytes).map(Some).boxed(),
                            },
                            false => futures::future::ready(None).boxed(),
                        };
                        self.state = State::Room { bytes, since, room };
                    }
                    None if self.fill(reader).await? => {}
                    None => return Ok(None),
                },
                State::Room { bytes, since, room } => {
                    let bytes = *bytes;
                    let since = *since;
                    let room = room.await;
                    self.begin_body(bytes, room, since.elapsed());
                }
                State::Body { bytes, body, .. } if body.len() < *bytes => {
                    let left = *bytes - body.len();
                    let mut limited = body.limit(left);
                    let read = reader.read_buf(&mut limited);
                    let read = in_time(self.deadline, read).await?;
                    if read == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                State::Body { .. } => return Ok(Some(self.complete())),
            }
        }
    }

    /// The length of the frame that the head opens with, once that is there. One that no frame has is refused at once.
    fn opening(&self) -> io::Result<Option<usize>> {
        let Some((length, key)) = self.head[..self.filled].split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*length);
        let key = key.first_chunk::<2>();
        let max = match key {
            Some(key) if *key != (ApiKey::Produce as i16).to_be_bytes() => OTHER_BYTES_MAX,
            _ => PRODUCE_BYTES_MAX,
        };
        match usize::try_from(length) {
            Ok(bytes) if (FRAME_BYTES_MIN..=max).contains(&bytes) => Ok(key.map(|_| bytes)),
            _ => {
                let words = format!("a frame of {length} bytes was opened, of at most {max}");
                Err(io::Error::new(io::ErrorKind::InvalidData, words))
            }
        }
    }

    /// Whether a frame takes room: a small one without batches does not, so that consumers never wait behind producers for it.
    fn takes_room(&self, bytes: usize) -> bool {
        bytes > SMALL_BYTES_MAX || self.head[4..6] == (ApiKey::Produce as i16).to_be_bytes()
    }

    /// Reads into the head; false: the peer has closed between two frames.
    async fn fill<R: AsyncRead + Unpin>(&mut self, reader: &mut R) -> io::Result<bool> {
        let read = reader.read(&mut self.head[self.filled..]);
        let read = in_time(self.deadline, read).await?;
        if read == 0 {
            return match self.filled {
                0 => Ok(false),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        self.filled += read;
        self.deadline.get_or_insert(Instant::now() + FRAME_TIME);
        Ok(true)
    }

    fn begin_body(&mut self, bytes: usize, room: Option<IngressPermit>, waited: Duration) {
        let here = (self.filled - 4).min(bytes);
        let mut body = BytesMut::with_capacity(bytes);
        body.put_slice(&self.head[4..4 + here]);
        self.head.copy_within(4 + here..self.filled, 0);
        self.filled -= 4 + here;
        // The time that the frame waited for room is ours, not the peer's.
        let slack = Duration::from_secs((bytes / FRAME_RATE_MIN) as u64);
        self.deadline = Some(Instant::now() + FRAME_TIME + slack);
        self.state = State::Body {
            bytes,
            body,
            room,
            waited,
        };
    }

    fn complete(&mut self) -> Frame {
        self.deadline = (self.filled > 0).then(|| Instant::now() + FRAME_TIME);
        match std::mem::replace(&mut self.state, State::Opening) {
            State::Body {
                body, room, waited, ..
            } => Frame {
                bytes: body.freeze(),
                room,
                waited,
            },
            _ => unreachable!("only a body is completed"),
        }
    }
}

async fn in_time(
    deadline: Option<Instant>,
    reading: impl Future<Output = io::Result<usize>>,
) -> io::Result<usize> {
    let Some(deadline) = deadline else {
        return reading.await;
    };
    let read = tokio::time::timeout_at(deadline, reading).await;
    read.unwrap_or_else(|_| {
        let words = "a frame that has begun did not end in time";
        Err(io::Error::new(io::ErrorKind::TimedOut, words))
    })
}
