//! The network between ledger clients and bookies: what becomes of each message.
//!
//! A request and its answer are two messages. Delays are drawn per message, with a bias towards very late ones, because uniform
//! delays do not find the old bugs (storage.md §3).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hulse_proto::id::{EntryId, LedgerId};
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use tokio::sync::Notify;

/// What is asked, or answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A writer's add.
    Add,
    /// A recoverer's add.
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
    /// Requests delivered twice.
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

type Script = Box<dyn FnMut(&Message<'_>) -> Option<Delivery> + Send>;

struct Plan {
    rng: ChaCha12Rng,
    rates: NetworkRates,
    script: Option<Script>,
    /// (from, to) pairs between which nothing passes.
    cuts: BTreeSet<(String, String)>,
}

/// The network. Clones share it.
#[derive(Clone)]
pub struct Network {
    plan: Arc<Mutex<Plan>>,
    released: Arc<Notify>,
}

impl Network {
    /// A calm one.
    pub fn new(rng: ChaCha12Rng) -> Self {
        Self {
            plan: Arc::new(Mutex::new(Plan {
                rng,
                rates: NetworkRates::CALM,
                script: None,
                cuts: BTreeSet::new(),
            })),
            released: Arc::default(),
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on as bad as this.
    pub fn set_rates(&self, rates: NetworkRates) {
        self.plan().rates = rates;
    }

    /// Lets `script` decide; where it answers `None`, the rates do.
    pub fn script(&self, script: impl FnMut(&Message<'_>) -> Option<Delivery> + Send + 'static) {
        self.plan().script = Some(Box::new(script));
    }

    /// Drops everything from one to the other from now on; the way back stays open.
    pub fn cut(&self, from: &str, to: &str) {
        self.plan().cuts.insert((from.to_owned(), to.to_owned()));
    }

    /// Ends all cuts, the script and the bad rates; held messages arrive.
    pub fn heal(&self) {
        let mut plan = self.plan();
        plan.cuts.clear();
        plan.script = None;
        plan.rates = NetworkRates::CALM;
        drop(plan);
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

    /// Decides about one message.
    pub fn deliver(&self, message: &Message<'_>) -> Delivery {
        let mut plan = self.plan();
        let (from, to) = match message.answer {
            false => (message.client, message.bookie),
            true => (message.bookie, message.client),
        };
        if plan.cuts.contains(&(from.to_owned(), to.to_owned())) {
            return Delivery::Drop;
        }
        let scripted = plan.script.as_mut().and_then(|script| script(message));
        scripted.unwrap_or_else(|| plan.draw(message.answer))
    }
}

impl Plan {
    fn draw(&mut self, answer: bool) -> Delivery {
        let rates = self.rates;
        let point: f64 = self.rng.random();
        if point < rates.drop {
            return Delivery::Drop;
        }
        if point < rates.drop + rates.late {
            return Delivery::After(self.delay(rates.late_max));
        }
        let usual = self.delay(rates.delay_max);
        if !answer && point < rates.drop + rates.late + rates.twice {
            return Delivery::Twice(usual, self.delay(rates.late_max.max(rates.delay_max)));
        }
        Delivery::After(usual)
    }

    fn delay(&mut self, max: Duration) -> Duration {
        let ms = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.rng.random_range(0..=ms))
    }
}
