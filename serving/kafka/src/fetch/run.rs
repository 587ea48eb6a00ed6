//! A fetch from its request to its answer.
//!
//! It ends as soon as there are `min_bytes`, a partition fails, its time is over, or another request waits behind it on the same
//! connection (serving.md D2.3). While it waits it holds no records.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use hulse_proto::id::Offset;
use kafka_protocol::messages::FetchRequest;
use serving_broker::LogOffsets;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::encode::{Broker, Head, encode, refuse, rows_bytes};
use super::gather::{Budget, Open, dispel, look, open_all};
use super::room::Room;
use super::session::{Asking, Plan, Telling};
use super::spot::{Found, Spot, spots};
use super::turn::Turn;
use crate::error_code;
use crate::link::{Link, OPENING_MAX};
use crate::requests::{FirstStage, Outcome, count, millis, rows_room, throttle};
use crate::wire::{Answer, Asked, Broken, Request};

/// First version with a session.
pub(super) const SESSIONS_FROM: i16 = 7;
/// Most bytes of records in one answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Longest wait that a client may ask for.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A fetch that does not want to wait waits for closed partitions all the same, but no longer than this.
const OPENING_MIN: Duration = Duration::from_millis(100);
/// What one element of a request takes while it waits, bytes.
const ELEMENT_BYTES: usize = 256;

/// First stage: the session's word. Everything else may go on beside later requests.
pub(crate) async fn first_stage(
    link: Arc<Link>,
    mut request: Request,
    number: u64,
) -> Result<FirstStage, Broken> {
    let message: FetchRequest = request.decode()?;
    let asking = Asking {
        session: message.session_id,
        epoch: message.session_epoch,
    };
    let wanted = spots(message.topics);
    let plan = match request.version {
        ..SESSIONS_FROM => Ok(Plan {
            telling: Telling::default(),
            spots: wanted,
        }),
        _ => link
            .served
            .sessions
            .plan(asking, wanted, message.forgotten_topics_data),
    };
    let bytes = |bytes: i32| usize::try_from(bytes).unwrap_or(0);
    let wait = Duration::from_millis(u64::try_from(message.max_wait_ms).unwrap_or(0)).min(WAIT_MAX);
    let bytes_max = bytes(message.max_bytes).min(ANSWER_BYTES_MAX);
    let asked = request.asked();
    let plan = match plan {
        Ok(plan) => plan,
        Err(code) => {
            count(link.front(), request.api.metric, request.began, code);
            let head = Head {
                asked,
                throttle_ms: 0,
                code,
                session: 0,
                broker: Broker::of(&link),
            };
            return Ok(FirstStage::Answered(Outcome::Answer(refuse(&head))));
        }
    };
    let held = request.frame_bytes + ELEMENT_BYTES * request.elements.max(plan.spots.len());
    let held = link
        .served
        .waiting
        .clone()
        .try_acquire_many_owned(u32::try_from(held).unwrap_or(u32::MAX))
        .ok();
    let first = lock(&link.turn).begin(&plan.spots);
    let fetch = Fetch {
        asked,
        number,
        open_until: request.began + wait.clamp(OPENING_MIN, OPENING_MAX),
        // Without room to wait in, it answers with what there is.
        deadline: request.began + if held.is_some() { wait } else { Duration::ZERO },
        bytes_min: bytes(message.min_bytes).min(bytes_max),
        bytes_max,
        telling: plan.telling,
        first,
        spots: plan.spots,
        link,
        _held: held,
    };
    let (metric, began) = (request.api.metric, request.began);
    let wait = throttle(request.waited);
    // Its room is of what comes in; from here on it counts as what waits.
    drop(request);
    Ok(FirstStage::later(async move {
        let link = fetch.link.clone();
        let answer = fetch.run(wait).await;
        count(link.front(), metric, began, answer.code);
        Outcome::Answer(answer)
    }))
}

struct Fetch {
    link: Arc<Link>,
    asked: Asked,
    /// Which request of its connection it is.
    number: u64,
    /// What is not open by then is answered as such.
    open_until: Instant,
    deadline: Instant,
    bytes_min: usize,
    bytes_max: usize,
    telling: Telling,
    /// The partition that is looked at first.
    first: usize,
    spots: Vec<Spot>,
    _held: Option<OwnedSemaphorePermit>,
}

/// What one look at every partition gave.
struct Gathered {
    found: Vec<Found>,
    bytes: usize,
    failed: bool,
    /// The limit of the answer kept batches out, so that it is of no use to wait for more.
    full: bool,
    /// The first partition that has records and gave none of them.
    left_out: Option<usize>,
    room: Room,
}

impl Gathered {
    /// There was no room for the first batch.
    fn is_starved(&self) -> bool {
        let no_room = self.room.is_lean || self.room.permit.is_none();
        no_room && self.bytes == 0 && self.left_out.is_some()
    }
}

impl Fetch {
    async fn run(self, throttle: Duration) -> Answer {
        let opens = open_all(&self.link, &self.spots, self.open_until).await;
        let mut tried = false;
        let gathered = loop {
            // Watched from before the look, so that nothing that comes after it is missed.
            let watches = watches(&opens);
            let gathered = self.gather(&opens, tried).await;
            let starved = gathered.is_starved();
            if gathered.failed
                || gathered.bytes >= self.bytes_min
                || (gathered.full && !starved)
                || Instant::now() >= self.deadline
                || self.is_pressed()
            {
                break gathered;
            }
            tried = starved;
            if starved {
                continue;
            }
            let missing = self.bytes_min - gathered.bytes;
            drop(gathered);
            self.wait(watches, missing).await;
        };
        self.answer(gathered, throttle).await
    }

    /// Something waits for this fetch to end.
    fn is_pressed(&self) -> bool {
        *self.link.requests.borrow() > self.number || self.link.front().drain().is_cancelled()
    }

    /// Ends when something waits for this fetch to end.
    async fn pressed(&self) {
        let mut requests = self.link.requests.subscribe();
        let drain = self.link.front().drain();
        tokio::select! {
            biased;
            _ = requests.wait_for(|number| *number > self.number) => {}
            () = drain.cancelled() => {}
        }
    }

    /// Waits until about `missing` bytes more are there, or the fetch must end.
    async fn wait(&self, watches: Vec<Watched>, missing: usize) {
        let more = grown(watches, missing);
        tokio::select! {
            biased;
            () = self.pressed() => {}
            () = more => {}
            () = self.link.front().partitions().doubted() => {}
            () = tokio::time::sleep_until(self.deadline) => {}
        }
    }

    /// Looks at every partition, from the first one round. Who has `tried` to do without room waits for it longer.
    async fn gather(&self, opens: &[Open], tried: bool) -> Gathered {
        let count = self.spots.len();
        dispel(&self.spots, opens).await;
        let room = match self.has_records(opens) {
            true => self.room(tried).await,
            false => Room::none(),
        };
        let mut budget = Budget {
            left: match room.permit {
                Some(_) => room.bytes.min(self.bytes_max),
                None => 0,
            },
            first_allowed: room.first_allowed(),
            full: false,
        };
        let mut gathered = Gathered {
            found: vec![Found::failed(error_code::NONE); count],
            bytes: 0,
            failed: false,
            full: false,
            left_out: None,
            room,
        };
        for step in 0..count {
            let at = (self.first + step) % count;
            let version = self.asked.version;
            let found = look(
                &self.link,
                version,
                &self.spots[at],
                &opens[at],
                &mut budget,
            )
            .await;
            gathered.bytes += found.bytes;
            if found.left_out {
                gathered.left_out.get_or_insert(at);
            }
            gathered.failed |= found.code != error_code::NONE;
            gathered.found[at] = found;
        }
        gathered.full = budget.full;
        // What is held until the answer is written is what is in it.
        gathered.room.keep(gathered.bytes);
        gathered
    }

    async fn room(&self, tried: bool) -> Room {
        let taking = Room::take(&self.link, self.bytes_max, self.deadline, tried);
        tokio::select! {
            biased;
            room = taking => room,
            () = self.pressed(), if tried => Room::none(),
        }
    }

    /// Whether any partition has records to give, by offsets alone.
    fn has_records(&self, opens: &[Open]) -> bool {
        self.spots.iter().zip(opens).any(|(spot, open)| {
            let end = |open: &serving_broker::PartitionHandle| open.offsets().high_watermark;
            let offset = u64::try_from(spot.offset).map(Offset);
            matches!((open, offset), (Ok(open), Ok(offset)) if offset < end(open))
        })
    }

    async fn answer(self, gathered: Gathered, throttle: Duration) -> Answer {
        if let Some(at) = gathered.left_out {
            lock(&self.link.turn).left_out(at);
        }
        let metrics = self.link.front().metrics();
        for found in &gathered.found {
            let batches = found.records.len() as u64;
            let records = found.records.iter().map(|batch| records(batch)).sum();
            metrics.sent(batches, records, found.bytes as u64);
        }
        let code = error_code::first_error(gathered.found.iter().map(|found| found.code));
        let mut partitions: Vec<(Spot, Found)> =
            self.spots.into_iter().zip(gathered.found).collect();
        self.link
            .served
            .sessions
            .tell(self.telling, &mut partitions);
        let head = Head {
            asked: self.asked,
            throttle_ms: millis(throttle),
            code: error_code::NONE,
            session: self.telling.session,
            broker: Broker::of(&self.link),
        };
        let rows = rows_room(&self.link, rows_bytes(&partitions)).await;
        let mut answer = encode(&head, partitions);
        answer.rows = rows;
        answer.room = gathered.room.permit;
        answer.mute = throttle;
        answer.code = code;
        answer
    }
}

fn lock(turn: &Mutex<Turn>) -> MutexGuard<'_, Turn> {
    turn.lock()
        .expect("no code panics while it holds this lock")
}

/// How many records a batch claims.
fn records(batch: &[u8]) -> u64 {
    hulse_proto::batch::BatchHeader::view(batch).map_or(0, |header| u64::from(header.count))
}

/// A log that is watched, and how many bytes it had before.
type Watched = (watch::Receiver<LogOffsets>, u64);

fn watches(opens: &[Open]) -> Vec<Watched> {
    let open = opens.iter().filter_map(|open| open.as_ref().ok());
    open.map(|open| {
        let mut watch = open.watch();
        let before = watch.borrow_and_update().stored_bytes;
        (watch, before)
    })
    .collect()
}

/// Waits until the logs have grown by so many bytes together, or one of them has ended.
async fn grown(watches: Vec<Watched>, missing: usize) {
    let mut grown = 0_u64;
    let mut waiting: FuturesUnordered<_> = watches.into_iter().map(next_growth).collect();
    while let Some(growth) = waiting.next().await {
        let Some((watch, before, after)) = growth else {
            return;
        };
        grown += after.saturating_sub(before);
        if grown >= missing as u64 {
            return;
        }
        waiting.push(next_growth((watch, after)));
    }
    // No partition is open: only time helps.
    futures::future::pending().await
}

/// The log with its bytes before and after it changed; `None`: the partition has stopped here.
async fn next_growth(
    (mut watch, before): Watched,
) -> Option<(watch::Receiver<LogOffsets>, u64, u64)> {
    watch.changed().await.ok()?;
    let after = watch.borrow_and_update().stored_bytes;
    Some((watch, before, after))
}
