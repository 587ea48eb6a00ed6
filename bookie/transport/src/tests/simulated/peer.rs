//! The bookie of a run: answers each call as its number says, some late, some never in time; and what all of a run saw, the log.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hulse_proto::bookie::{
    AddRequest, Address, BookieCalls, BookieError, Call as Later, EntryHead, FenceAnswer,
    FenceRequest, Inventory, InventoryRequest, ReadRequest, RecoveryReadAnswer,
    RecoveryReadRequest, StoredEntry,
};
use hulse_proto::id::NodeName;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use turmoil::net::TcpListener;

use super::calls::{BODY_BYTES_MAX, CallId, Kind};
use super::net::{PORT, incoming};
use super::run::FIRE;
use crate::serve::{ServeLimits, Served, serve};

/// What an entry takes beside its body, at most.
const ENTRY_OVERHEAD: usize = 300;

/// A call and where it went.
pub(super) type Key = (usize, CallId);

/// What a run saw. Shared by everybody in it.
#[derive(Default)]
pub(super) struct Log(Mutex<Book>);

#[derive(Default)]
struct Book {
    wrong: Vec<String>,
    /// Made and not answered, by lane.
    waiting: BTreeSet<(usize, u32, bool, u32)>,
    arrived: BTreeSet<Key>,
    /// Of each bookie: calls and bytes of adds that are not answered.
    live: BTreeMap<usize, (usize, usize)>,
    /// Of everything, in its order.
    fingerprint: u64,
}

impl Log {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wrong(&self, words: impl Into<String>) {
        let mut book = self.book();
        if book.wrong.len() < 20 {
            book.wrong.push(words.into());
        }
    }

    pub(super) fn found(&self) -> (Vec<String>, u64) {
        let book = self.book();
        (book.wrong.clone(), book.fingerprint)
    }

    fn note(&self, what: u64, (bookie, id): Key) {
        let at = turmoil::elapsed().as_micros() as u64;
        let mut book = self.book();
        for word in [what, at, bookie as u64, id.ledger().0] {
            book.fingerprint =
                (book.fingerprint.rotate_left(7) ^ word).wrapping_mul(0x100_0000_01b3);
        }
    }

    /// A call is made.
    pub(super) fn waits(&self, (bookie, id): Key, kind: Kind) {
        let place = (bookie, id.caller, kind.is_ordered(), id.number);
        self.book().waiting.insert(place);
    }

    /// How many of a lane wait.
    pub(super) fn waiting(&self, bookie: usize, caller: u32, ordered: bool) -> usize {
        let book = self.book();
        let lane = (bookie, caller, ordered, 0)..=(bookie, caller, ordered, u32::MAX);
        book.waiting.range(lane).count()
    }

    /// A call is answered.
    pub(super) fn heard(&self, key: Key, kind: Kind, answer: &Result<String, BookieError>) {
        let (bookie, id) = key;
        self.note(u64::from(answer.is_ok()), key);
        let mut book = self.book();
        book.waiting
            .remove(&(bookie, id.caller, kind.is_ordered(), id.number));
        let arrived = book.arrived.contains(&key);
        drop(book);
        let claims = !matches!(
            answer,
            Err(BookieError::NoAnswer { .. } | BookieError::Busy { .. })
        );
        if claims && (!arrived || *answer != kind.expected(id)) {
            let words = format!("{kind:?} {key:?} (arrived: {arrived}) is answered {answer:?}");
            self.wrong(words);
        }
    }

    /// A call comes to a bookie.
    fn arrives(&self, key: Key, kind: Kind) {
        let (bookie, id) = key;
        self.note(2, key);
        let mut book = self.book();
        let first = book.arrived.insert(key);
        let lane = (bookie, id.caller, kind.is_ordered());
        let earlier = (lane.0, lane.1, lane.2, 0)..(lane.0, lane.1, lane.2, id.number);
        let passed = book
            .waiting
            .range(earlier)
            .find(|(bookie, caller, _, number)| {
                let id = CallId {
                    caller: *caller,
                    number: *number,
                };
                !book.arrived.contains(&(*bookie, id))
            });
        let passed = passed.copied();
        drop(book);
        if !first {
            self.wrong(format!("{kind:?} {key:?} arrives twice"));
        }
        if let Some(passed) = passed {
            self.wrong(format!("{kind:?} {key:?} arrives before {passed:?}"));
        }
    }

    /// Nothing is left of what was broken.
    pub(super) fn settled(&self, bookie: usize, connections: usize, most: usize) {
        let book = self.book();
        let waiting = book.waiting.len();
        let live = book.live.get(&bookie).copied().unwrap_or_default();
        drop(book);
        if waiting > 0 || live != (0, 0) || connections > most {
            self.wrong(format!(
                "bookie {bookie} is left with {live:?} calls and bytes, {connections} connections, its callers with {waiting} calls"
            ));
        }
    }
}

/// A bookie.
pub(super) struct Peer {
    pub(super) number: usize,
    pub(super) log: Arc<Log>,
    pub(super) limits: ServeLimits,
    /// Connections that are open.
    pub(super) open: Arc<AtomicUsize>,
    /// Of its present life.
    pub(super) leaving: Arc<Mutex<CancellationToken>>,
}

pub(super) fn host(number: usize) -> String {
    format!("bookie-{number}")
}

impl Peer {
    /// One life.
    pub(super) async fn live(self: Arc<Self>) -> turmoil::Result {
        let leaving = CancellationToken::new();
        *self.leaving.lock().unwrap() = leaving.clone();
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
        let served = Served {
            name: NodeName::new(&host(self.number))?,
            calls: self.clone(),
            limits: self.limits,
            leaving,
        };
        serve(Box::pin(incoming(listener, self.open.clone())), served).await?;
        // Whoever left stays away until it is started again.
        std::future::pending().await
    }

    /// Some calls take their time, some longer than their callers wait. So calls that were given up stand before others, until the
    /// bookie is fast again, as the network is.
    fn takes(id: CallId) -> Duration {
        let ms = match id.draw(20) % 100 {
            _ if turmoil::sim_elapsed().is_some_and(|at| at >= FIRE) => id.draw(21) % 20,
            0..60 => id.draw(21) % 20,
            60..95 => id.draw(21) % 800,
            _ => 3_000 + id.draw(21) % 5_000,
        };
        Duration::from_millis(ms)
    }

    fn later<T: Send + 'static>(
        &self,
        to: &Address,
        (kind, bytes): (Kind, usize),
        answer: impl FnOnce(CallId) -> Result<T, BookieError> + Send + 'static,
    ) -> Later<T> {
        let id = CallId::of(to);
        self.log.arrives((self.number, id), kind);
        let live = Live::begin(self, bytes);
        Box::pin(live.during(async move {
            sleep(Self::takes(id)).await;
            answer(id)
        }))
    }
}

/// Counts a call until it is answered, or its stream is gone.
struct Live {
    log: Arc<Log>,
    bookie: usize,
    bytes: usize,
}

impl Live {
    fn begin(peer: &Peer, bytes: usize) -> Self {
        let (live, held) = {
            let mut book = peer.log.book();
            let live = book.live.entry(peer.number).or_default();
            live.0 += 1;
            live.1 += bytes;
            *live
        };
        let open = peer.open.load(Ordering::Relaxed);
        let most = peer.limits.bytes_max + BODY_BYTES_MAX + ENTRY_OVERHEAD;
        if live > peer.limits.calls_max * open || held > most * open {
            peer.log.wrong(format!(
                "bookie {} has {live} calls of {held} bytes over {open} connections, bounded by {:?}",
                peer.number, peer.limits
            ));
        }
        Self {
            log: Arc::clone(&peer.log),
            bookie: peer.number,
            bytes,
        }
    }

    async fn during<T>(self, work: impl Future<Output = T>) -> T {
        let answer = work.await;
        drop(self);
        answer
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut book = self.log.book();
        let live = book.live.entry(self.bookie).or_default();
        live.0 -= 1;
        live.1 -= self.bytes;
    }
}

impl BookieCalls for Peer {
    fn add(&self, request: AddRequest) -> Later<()> {
        let right =
            request.entry.verify().is_ok() && request.entry.header().ledger == request.to.ledger;
        if !right {
            self.log
                .wrong(format!("{:?} came with other bytes", request.to));
        }
        let bytes = request.entry.header().entry_len();
        self.later(&request.to, (Kind::Add, bytes), CallId::done)
    }

    fn fence(&self, request: FenceRequest) -> Later<FenceAnswer> {
        if request != CallId::of(&request.to).fence() {
            self.log.wrong(format!("{request:?} came otherwise"));
        }
        self.later(&request.to, (Kind::Fence, 0), CallId::fenced)
    }

    fn recovery_read(&self, request: RecoveryReadRequest) -> Later<RecoveryReadAnswer> {
        self.later(&request.to, (Kind::RecoveryRead, 0), CallId::recovered)
    }

    fn read(&self, request: ReadRequest) -> Later<Vec<StoredEntry>> {
        self.later(&request.to, (Kind::Read, 0), CallId::entries)
    }

    fn read_heads(&self, request: ReadRequest) -> Later<Vec<EntryHead>> {
        self.later(&request.to, (Kind::Heads, 0), CallId::heads)
    }

    fn delete(&self, to: Address) -> Later<()> {
        self.later(&to, (Kind::Delete, 0), CallId::done)
    }

    fn inventory(&self, request: InventoryRequest) -> Later<Inventory> {
        self.later(&request.to, (Kind::Inventory, 0), CallId::held)
    }
}
