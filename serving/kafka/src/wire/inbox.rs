//! Reads frames: four bytes of length, and so many bytes.
//!
//! An idle connection keeps [`HEAD_BYTES`] and nothing else. A frame's length is judged, by the kind of request that it opens with,
//! before there is room for it. The room is the broker's, shared by all listeners, and a frame gets it when its first
//! [`FIRST_BYTES`] are there: a peer that only names a length holds nothing. Then the rest must come at a pace.
//!
//! Cancel-safe: what was read stays here, also the place in the queue for room.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use kafka_protocol::messages::ApiKey;
use serving_broker::{Front, IngressPermit};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::Instant;

/// Read at once while a frame is not known; most requests of an idle consumer fit.
const HEAD_BYTES: usize = 256;
/// Shortest frame: key, version and correlation id.
const FRAME_BYTES_MIN: usize = 8;
/// Longest frame that holds batches (serving.md D2.4). Each batch is judged by itself.
const PRODUCE_BYTES_MAX: usize = 100 << 20;
/// It takes at most this part of the room of all.
const ROOM_SHARE: usize = 4;
/// What stands around the largest batch in a frame, which is always taken.
const AROUND_BYTES: usize = 64 << 10;
/// Longest other frame: a hundred thousand partitions.
const OTHER_BYTES_MAX: usize = 8 << 20;
/// Frames without batches up to this need no room: with all connections together they take no more than some megabytes.
const SMALL_BYTES_MAX: usize = 4 << 10;
/// So many bytes of a frame come before there is room for it.
const FIRST_BYTES: usize = 16 << 10;
/// A frame that has begun may stand still for this long …
const GRACE: Duration = Duration::from_secs(30);
/// … longer by what came of it at this rate per second.
const RATE_MIN: usize = 64 << 10;
/// A frame of more bytes is large: it keeps others waiting.
const LARGE_BYTES: usize = 1 << 20;
/// Large frames leave this part of the room to others while they come.
const LARGE_LEAVE: usize = 4;
/// As [`GRACE`], of a large one.
const LARGE_GRACE: Duration = Duration::from_secs(5);
/// As [`RATE_MIN`], of a large one.
const LARGE_RATE_MIN: usize = 256 << 10;

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
    /// Its length is right and its first bytes come.
    First { bytes: usize, body: BytesMut },
    /// The room for the rest is asked for.
    Room {
        bytes: usize,
        body: BytesMut,
        since: Instant,
        room: BoxFuture<'static, (IngressPermit, Turn)>,
    },
    /// There is room, and the rest comes.
    Body {
        bytes: usize,
        body: BytesMut,
        room: Option<IngressPermit>,
        _turn: Turn,
        waited: Duration,
    },
}

/// Part of what the frames that are large may hold while they come; `None`: this one is not.
type Turn = Option<OwnedSemaphorePermit>;

/// Bytes of large frames that come at the same time, over the connections of a listener: not all of the room, so that small ones do
/// not wait for slow peers.
#[derive(Debug, Clone)]
pub(crate) struct LargeFrames {
    turns: Arc<Semaphore>,
    bytes: usize,
}

impl LargeFrames {
    /// Where all frames together hold up to so many bytes.
    pub(crate) fn new(ingress_bytes: usize) -> Self {
        let bytes = (ingress_bytes - ingress_bytes / LARGE_LEAVE).max(1);
        let turns = Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS)));
        Self { turns, bytes }
    }

    /// Permits of a frame; one that is longer than all takes all.
    fn count(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.bytes)).unwrap_or(u32::MAX)
    }

    /// Now, or not: `Err`.
    fn try_take(&self, bytes: usize) -> Result<Turn, TryAcquireError> {
        match bytes > LARGE_BYTES {
            true => {
                let turns = self.turns.clone();
                turns.try_acquire_many_owned(self.count(bytes)).map(Some)
            }
            false => Ok(None),
        }
    }

    async fn take(self, bytes: usize) -> Turn {
        let count = self.count(bytes);
        let turn = self.turns.acquire_many_owned(count).await;
        Some(turn.expect("this semaphore is never closed"))
    }
}

/// The receiving side of a connection.
pub(crate) struct Inbox {
    head: [u8; HEAD_BYTES],
    filled: usize,
    state: State,
    large: LargeFrames,
    /// How fast the frame must come that has begun.
    pace: Option<Pace>,
}

/// How fast bytes must come. Asked at each of them, so that who stands still is given up soon however long its frame is.
#[derive(Debug, Clone, Copy)]
struct Pace {
    since: Instant,
    grace: Duration,
    rate_min: usize,
    /// Bytes that came.
    came: usize,
}

impl Pace {
    /// From now on, of a frame of so many bytes.
    fn new(bytes: usize) -> Self {
        let (grace, rate_min) = match bytes > LARGE_BYTES {
            true => (LARGE_GRACE, LARGE_RATE_MIN),
            false => (GRACE, RATE_MIN),
        };
        Self {
            since: Instant::now(),
            grace,
            rate_min,
            came: 0,
        }
    }

    /// Until when the next byte must come.
    fn deadline(&self) -> Instant {
        let earned = Duration::from_millis((self.came * 1_000 / self.rate_min) as u64);
        self.since + self.grace + earned
    }
}

impl Inbox {
    /// Nothing was read yet.
    pub(crate) fn new(large: LargeFrames) -> Self {
        Self {
            large,
            head: [0; HEAD_BYTES],
            filled: 0,
            state: State::Opening,
            pace: None,
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
            let pace = &mut self.pace;
            match &mut self.state {
                State::Opening => match self.opening(front)? {
                    Some(bytes) => self.begin(bytes),
                    None if self.fill(reader).await? => {}
                    None => return Ok(None),
                },
                State::First { bytes, body } => match (*bytes).min(FIRST_BYTES) - body.len() {
                    0 => self.ask_for_room(front),
                    left => read_some(reader, body, left, pace).await?,
                },
                State::Room { room, .. } => {
                    let (room, turn) = room.await;
                    self.take_room(room, turn);
                }
                State::Body { bytes, body, .. } => match *bytes - body.len() {
                    0 => return Ok(Some(self.complete())),
                    left => read_some(reader, body, left, pace).await?,
                },
            }
        }
    }

    /// The length of the frame that the head opens with, once that is there. One that no frame has is refused at once.
    fn opening(&self, front: &Front) -> io::Result<Option<usize>> {
        let Some((length, key)) = self.head[..self.filled].split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*length);
        let key = key.first_chunk::<2>();
        let config = front.config();
        let least = config.max_batch_bytes + AROUND_BYTES;
        let share = (config.ingress_bytes / ROOM_SHARE).max(least);
        let max = match key {
            Some(key) if *key != (ApiKey::Produce as i16).to_be_bytes() => OTHER_BYTES_MAX,
            _ => PRODUCE_BYTES_MAX,
        };
        let max = max.min(share);
        match usize::try_from(length) {
            Ok(bytes) if (FRAME_BYTES_MIN..=max).contains(&bytes) => Ok(key.map(|_| bytes)),
            _ => {
                let words = format!("a frame of {length} bytes was opened, of at most {max}");
                Err(io::Error::new(io::ErrorKind::InvalidData, words))
            }
        }
    }

    /// Reads into the head; false: the peer has closed between two frames.
    async fn fill<R: AsyncRead + Unpin>(&mut self, reader: &mut R) -> io::Result<bool> {
        let read = reader.read(&mut self.head[self.filled..]);
        let read = match &self.pace {
            Some(pace) => in_time(*pace, read).await?,
            None => read.await?,
        };
        if read == 0 {
            return match self.filled {
                0 => Ok(false),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        self.filled += read;
        self.pace.get_or_insert_with(|| Pace::new(0));
        Ok(true)
    }

    /// Takes over what of the frame is in the head.
    fn begin(&mut self, bytes: usize) {
        let here = (self.filled - 4).min(bytes);
        let mut body = BytesMut::with_capacity(bytes.min(FIRST_BYTES));
        body.put_slice(&self.head[4..4 + here]);
        self.head.copy_within(4 + here..self.filled, 0);
        self.filled -= 4 + here;
        self.pace = Some(Pace::new(bytes));
        self.state = State::First { bytes, body };
    }

    fn ask_for_room(&mut self, front: &Front) {
        let State::First { bytes, body } = &mut self.state else {
            unreachable!("room is asked for when the first bytes are there");
        };
        let (bytes, body) = (*bytes, std::mem::take(body));
        let is_produce = body[..2] == (ApiKey::Produce as i16).to_be_bytes();
        // Consumers never wait behind producers for room: their frames are small.
        if bytes <= SMALL_BYTES_MAX && !is_produce {
            return self.begin_rest(bytes, body, (None, None), Duration::ZERO);
        }
        let turn = self.large.try_take(bytes);
        let room = turn.is_ok().then(|| front.try_room(bytes)).flatten();
        match (room, turn) {
            (Some(room), Ok(turn)) => {
                self.begin_rest(bytes, body, (Some(room), turn), Duration::ZERO);
            }
            (_, turn) => {
                let (room, large) = (front.room(bytes), self.large.clone());
                let room = async move {
                    let turn = match turn {
                        Ok(turn) => turn,
                        Err(_) => large.take(bytes).await,
                    };
                    (room.await, turn)
                };
                self.state = State::Room {
                    bytes,
                    body,
                    since: Instant::now(),
                    room: room.boxed(),
                }
            }
        }
    }

    fn take_room(&mut self, room: IngressPermit, turn: Turn) {
        let State::Room {
            bytes, body, since, ..
        } = &mut self.state
        else {
            unreachable!("room comes where it was asked for");
        };
        let (bytes, body, waited) = (*bytes, std::mem::take(body), since.elapsed());
        self.begin_rest(bytes, body, (Some(room), turn), waited);
    }

    fn begin_rest(
        &mut self,
        bytes: usize,
        mut body: BytesMut,
        (room, turn): (Option<IngressPermit>, Turn),
        waited: Duration,
    ) {
        body.reserve(bytes - body.len());
        // The time that the frame waited for room is ours, not the peer's.
        self.pace = Some(Pace::new(bytes));
        self.state = State::Body {
            bytes,
            body,
            room,
            _turn: turn,
            waited,
        };
    }

    fn complete(&mut self) -> Frame {
        self.pace = (self.filled > 0).then(|| Pace::new(0));
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

/// Reads some of the `left` bytes that a body lacks.
async fn read_some<R: AsyncRead + Unpin>(
    reader: &mut R,
    body: &mut BytesMut,
    left: usize,
    pace: &mut Option<Pace>,
) -> io::Result<()> {
    let mut limited = body.limit(left);
    let read = reader.read_buf(&mut limited);
    let pace = pace.as_mut().expect("a frame has begun");
    let read = in_time(*pace, read).await?;
    pace.came += read;
    match read {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

async fn in_time(
    pace: Pace,
    reading: impl Future<Output = io::Result<usize>>,
) -> io::Result<usize> {
    let read = tokio::time::timeout_at(pace.deadline(), reading).await;
    read.unwrap_or_else(|_| {
        let words = "a frame that has begun does not come in time";
        Err(io::Error::new(io::ErrorKind::TimedOut, words))
    })
}
