//! Virtual time and a network that is unkind on purpose: delays are chosen to starve single links, not uniformly.

use std::collections::BTreeMap;
use std::time::Duration;

use bookie_metadata::{MetadataError, Txn, TxnOutcome, Versioned};
use hulse_proto::bookie::BookieError;
use hulse_proto::ledger::{LedgerMetadata, Member};
use rand::Rng;
use rand_chacha::ChaCha12Rng;

use crate::recovery::{BookieAsk, RecoveryEvent};
use crate::writer::{AddCall, AddTag, WriterEvent};

/// Who asked metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    WriterClose,
    WriterCheck,
    WriterChange,
    Recoverer(usize),
}

/// Something on its way, or due.
#[derive(Debug)]
pub(super) enum Message {
    Append,
    Add(AddCall),
    /// A first contact whose metadata were read a while ago (B2).
    VerifiedAdd(AddCall, Option<Box<LedgerMetadata>>),
    AddAnswer(AddTag, Result<(), BookieError>),
    Ask {
        from: usize,
        position: usize,
        member: Member,
        ask: BookieAsk,
    },
    AskAnswer(usize, RecoveryEvent),
    Get(Asker, String),
    GetAnswer(Asker, Result<Option<Versioned>, MetadataError>),
    Txn(Asker, Txn),
    LateTxn(Asker, Txn),
    TxnAnswer(Asker, Result<TxnOutcome, MetadataError>),
    WakeWriter,
    WakeRecoverer(usize),
    StartRecoverer(usize),
    CrashRecoverer(usize),
    CloseWriter,
    CrashWriter,
    LoseTail(usize),
    ForWriter(Box<WriterEvent>),
    Kill(usize),
    Pause(usize),
    ReadOnly(usize),
    Silence,
    Upkeep,
}

/// How bad a run is; drawn per seed, so that runs differ in kind (swarm testing).
#[derive(Debug, Clone)]
pub(super) struct Profile {
    lost: f64,
    doubled: f64,
    frozen: f64,
    /// Slowness of each link to a bookie, requests and answers apart.
    slow: Vec<[u64; 2]>,
    pub(super) unknown_txn: f64,
}

impl Profile {
    pub(super) fn draw(rng: &mut ChaCha12Rng, bookies: usize) -> Self {
        let rare = |rng: &mut ChaCha12Rng, most: f64| {
            if rng.random_bool(0.5) {
                rng.random_range(0.0..most)
            } else {
                0.0
            }
        };
        let slow = (0..bookies)
            .map(|_| [0; 2].map(|_: u64| [1, 1, 5, 60][rng.random_range(0..4)]))
            .collect();
        Self {
            lost: rare(rng, 0.2),
            doubled: rare(rng, 0.1),
            frozen: rare(rng, 0.15),
            slow,
            unknown_txn: rare(rng, 0.6),
        }
    }

    /// Nothing goes wrong.
    pub(super) fn calm(bookies: usize) -> Self {
        Self {
            lost: 0.0,
            doubled: 0.0,
            frozen: 0.0,
            slow: vec![[1; 2]; bookies],
            unknown_txn: 0.0,
        }
    }
}

/// Messages by time of arrival.
#[derive(Debug, Default)]
pub(super) struct Network {
    queue: BTreeMap<(Duration, u64), Message>,
    sequence: u64,
    pub(super) now: Duration,
}

impl Network {
    pub(super) fn at(&mut self, at: Duration, message: Message) {
        self.sequence += 1;
        self.queue
            .insert((at.max(self.now), self.sequence), message);
    }

    pub(super) fn next(&mut self) -> Option<Message> {
        let ((at, _), message) = self.queue.pop_first()?;
        self.now = at;
        Some(message)
    }

    /// When a message to or from bookie `index` arrives; empty: never; two: doubled.
    pub(super) fn fates(
        &self,
        rng: &mut ChaCha12Rng,
        profile: &Profile,
        index: usize,
        answer: bool,
    ) -> Vec<Duration> {
        let slow = profile.slow[index][usize::from(answer)];
        let copies = if rng.random_bool(profile.lost) {
            0
        } else {
            1 + usize::from(rng.random_bool(profile.doubled))
        };
        let copies: Vec<Duration> = (0..copies)
            .map(|_| {
                let usual = Duration::from_micros(rng.random_range(100..2_000) * slow);
                let frozen = rng.random_bool(profile.frozen);
                let extra = if frozen {
                    Duration::from_millis(rng.random_range(50..8_000))
                } else {
                    Duration::ZERO
                };
                self.now + usual + extra
            })
            .collect();
        copies
    }
}
