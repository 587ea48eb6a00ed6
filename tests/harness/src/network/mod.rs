//! The network between ledger clients and bookies: what becomes of each message, and which goes first.
//!
//! A request and its answer are two messages. Uniform delays do not find the old bugs (storage.md §3), so each run has one
//! [`Schedule`]: uniform, some links starved for long, or strict priorities among links.
//!
//! `plan` draws the fate of one message, `links` how slow each link is, `turns` holds back what others go before.

mod links;
mod plan;
mod turns;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hulse_proto::id::{EntryId, LedgerId};
use rand_chacha::ChaCha12Rng;
use tokio::sync::Notify;

use crate::bookie::{Reply, Request};
pub use links::Schedule;
use plan::Plan;
pub use turns::Turn;
use turns::Turns;

/// What is asked, or answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A writer's add.
    Add,
    /// A recoverer's add, or one of repair.
    WriteBack,
    /// A fence.
    Fence,
    /// A recovery read.
    RecoveryRead,
    /// A plain read.
    Read,
    /// A deletion.
    Delete,
}

/// One message, on its way.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The client's process.
    pub client: &'a str,
    /// The bookie.
    pub bookie: &'a str,
    /// What.
    pub kind: Kind,
    /// False: the request; true: the answer.
    pub answer: bool,
    /// Of which ledger.
    pub ledger: LedgerId,
    /// Of which entry, where there is one.
    pub entry: Option<EntryId>,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It never arrives.
    Drop,
    /// It arrives after this long.
    After(Duration),
    /// It arrives twice.
    Twice(Duration, Duration),
    /// It waits for [`Network::release`].
    Hold,
}

/// How bad the network is, each rate from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NetworkRates {
    /// Lost.
    pub drop: f64,
    /// Delayed by up to `late_max`.
    pub late: f64,
    /// Delivered twice, requests and answers alike.
    pub twice: f64,
    /// Usual longest delay.
    pub delay_max: Duration,
    /// Longest delay of a late one.
    pub late_max: Duration,
}

impl NetworkRates {
    /// One that works.
    pub const CALM: Self = Self {
        drop: 0.0,
        late: 0.0,
        twice: 0.0,
        delay_max: Duration::from_millis(3),
        late_max: Duration::ZERO,
    };
}

/// What a client does or is told: a request that leaves it, or an answer that reaches it.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// The client's process.
    pub client: &'a str,
    /// The bookie.
    pub bookie: &'a str,
    /// The request.
    pub request: &'a Request,
    /// `None`: the request leaves; else the answer that arrives.
    pub reply: Option<&'a Reply>,
}

type Observer = Box<dyn FnMut(&Sight<'_>) + Send>;

/// The network. Clones share it.
#[derive(Clone)]
pub struct Network {
    plan: Arc<Mutex<Plan>>,
    turns: Turns,
    released: Arc<Notify>,
    observer: Arc<Mutex<Option<Observer>>>,
}

impl Network {
    /// A calm one, its links all alike.
    pub fn new(rng: ChaCha12Rng) -> Self {
        Self {
            plan: Arc::new(Mutex::new(Plan::new(rng))),
            turns: Turns::default(),
            released: Arc::default(),
            observer: Arc::default(),
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on as bad as this.
    pub fn set_rates(&self, rates: NetworkRates) {
        self.plan().rates = rates;
    }

    /// From now on in this order; `seed` decides which links are slow, or go first.
    pub fn set_schedule(&self, schedule: Schedule, seed: u64) {
        self.plan().links.set(schedule, seed);
        match schedule {
            Schedule::Priority => self.turns.begin(seed),
            _ => self.turns.end(),
        }
    }

    /// Lets `script` decide; where it answers `None`, the rates do.
    pub fn script(&self, script: impl FnMut(&Message<'_>) -> Option<Delivery> + Send + 'static) {
        self.plan().script = Some(Box::new(script));
    }

    /// Shows `observer` every request that leaves a client and every answer that reaches one.
    pub fn observe(&self, observer: impl FnMut(&Sight<'_>) + Send + 'static) {
        *self.observer() = Some(Box::new(observer));
    }

    fn observer(&self) -> MutexGuard<'_, Option<Observer>> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn see(&self, sight: &Sight<'_>) {
        if let Some(observer) = self.observer().as_mut() {
            observer(sight);
        }
    }

    /// Ends the script.
    pub fn unscript(&self) {
        self.plan().script = None;
    }

    /// Drops everything from one to the other from now on; the way back stays open.
    pub fn cut(&self, from: &str, to: &str) {
        self.plan().cuts.insert((from.to_owned(), to.to_owned()));
    }

    /// Ends all cuts, the script, the schedule and the bad rates; held messages arrive. What is late stays late.
    pub fn heal(&self) {
        let mut plan = self.plan();
        plan.cuts.clear();
        plan.script = None;
        plan.rates = NetworkRates::CALM;
        plan.links.set(Schedule::Uniform, 0);
        drop(plan);
        self.turns.end();
        self.release();
    }

    /// Ends all cuts.
    pub fn mend(&self) {
        self.plan().cuts.clear();
    }

    /// Lets every held message go.
    pub fn release(&self) {
        self.released.notify_waiters();
    }

    /// Waits for the next [`Network::release`].
    pub async fn held(&self) {
        self.released.notified().await;
    }

    /// Waits until no call of a link that goes first is on its way; at once without priorities. Dropping the turn lets others go.
    pub async fn turn(&self, client: &str, bookie: &str) -> Turn {
        self.turns.enter(client, bookie).await
    }

    /// Decides about one message.
    pub fn deliver(&self, message: &Message<'_>) -> Delivery {
        self.plan().deliver(message)
    }
}
