//! Hard states to begin with, built by hand: what a long and unlucky history leaves behind, and a random one seldom reaches.

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::testing::{Fate, Late};
use bookie_metadata::{MetadataStore, Op, Txn};
use bytes::Bytes;
use hulse_proto::id::{EntryId, FenceToken, LedgerId};
use hulse_proto::ledger::{Degraded, Fragment, LedgerMetadata, LedgerState, ledger_key};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use tests_harness::chaos::Victims;
use tests_harness::network::{Delivery, Kind};
use tests_harness::{PowerLoss, Process, World, trace};
use tokio::time::sleep;

use super::book::Book;
use super::recoverer::recover_all;
use super::writer::{append, new_ledger};

/// What the run begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Entries behind the confirmed end on single members, and no writer.
    HalfWritten,
    /// An empty last fragment behind a full one.
    EmptyFragment,
    /// In recovery, with a token that no bookie has seen; an older one is on some.
    StaleToken,
    /// Two recoverers, both in the middle.
    TwoRecoverers,
    /// A writer that stands still with a proposal whose outcome it does not know.
    Unresolved,
    /// Entries that one member lacks, and metadata that say so.
    Degraded,
}

const ALL: [Start; 6] = [
    Start::HalfWritten,
    Start::EmptyFragment,
    Start::StaleToken,
    Start::TwoRecoverers,
    Start::Unresolved,
    Start::Degraded,
];

/// Makes one of the hard states, while nothing else goes wrong yet.
pub async fn build(world: &Arc<World>, book: &Book, victims: &Victims, mut rng: ChaCha12Rng) {
    let start = *ALL.choose(&mut rng).expect("there are states");
    trace!(world.trace, "begins {start:?}");
    let mut scene = Scene {
        world: world.clone(),
        book: book.clone(),
        victims: victims.clone(),
        rng,
    };
    let process = scene.process("s0");
    world.counts.add(match start {
        Start::HalfWritten => "starts: half-written tail",
        Start::EmptyFragment => "starts: empty last fragment",
        Start::StaleToken => "starts: stale token",
        Start::TwoRecoverers => "starts: two recoverers in the middle",
        Start::Unresolved => "starts: unresolved proposal",
        Start::Degraded => "starts: degraded fragment",
    });
    if start == Start::Unresolved {
        return scene.unresolved(process).await;
    }
    let Some(ledger) = scene.half_written(&process, start).await else {
        return;
    };
    match start {
        Start::StaleToken => scene.stale_token(ledger).await,
        Start::TwoRecoverers => scene.two_recoverers().await,
        _ => {}
    }
    world.network.unscript();
}

struct Scene {
    world: Arc<World>,
    book: Book,
    victims: Victims,
    rng: ChaCha12Rng,
}

impl Scene {
    fn process(&self, name: &str) -> Process {
        let process = Process::new(name);
        self.victims
            .lock()
            .expect("no panic under this lock")
            .push(process.clone());
        process
    }

    /// A writer's ledger with a confirmed part and a tail of which some copies arrived; its writer is dead.
    async fn half_written(&mut self, process: &Process, start: Start) -> Option<LedgerId> {
        let client = self.world.client(process);
        let book = self.book.clone();
        let create = client.create(new_ledger(&self.world), |ledger| {
            book.open(ledger);
            Txn::default()
        });
        let writer = create.await.ok()?;
        let (whole, tail) = (self.rng.random_range(0..8), self.rng.random_range(1..6));
        let missed = writer.metadata().last_fragment().ensemble[0].clone();
        if start == Start::Degraded {
            let bookie = missed.bookie.to_string();
            self.world.network.script(move |message| {
                let lost = message.bookie == bookie && message.kind == Kind::Add;
                lost.then_some(Delivery::Drop)
            });
        }
        for number in 0..whole {
            let body = Bytes::from(format!("whole {number}"));
            append(&self.world, process, &self.book, &writer, number, body);
        }
        sleep(Duration::from_millis(120)).await;
        let (ledger, metadata) = (writer.ledger(), writer.metadata());
        let confirmed = writer.confirmed_end();
        match start {
            Start::EmptyFragment => self.empty_fragment(ledger, metadata, confirmed).await,
            Start::Degraded => {
                let degraded = Degraded {
                    first: EntryId(0),
                    end: confirmed,
                    bookies: vec![missed.bookie],
                };
                self.put(ledger, |metadata| {
                    if confirmed > EntryId(0) {
                        metadata.degraded.push(degraded);
                    }
                })
                .await;
            }
            _ => {
                self.lose_adds();
                for number in whole..whole + tail {
                    let body = Bytes::from(format!("tail {number}"));
                    append(&self.world, process, &self.book, &writer, number, body);
                }
                sleep(Duration::from_millis(40)).await;
            }
        }
        process.kill();
        sleep(Duration::from_millis(20)).await;
        Some(ledger)
    }

    /// Each add of the tail arrives with its own chance, the same at each try.
    fn lose_adds(&mut self) {
        let seed: u64 = self.rng.random();
        let share = *[0.4, 0.7, 0.9].choose(&mut self.rng).expect("three shares");
        self.world.network.script(move |message| {
            let entry = message.entry?;
            let bookie = message.bookie.bytes().last().unwrap_or_default();
            let own = seed ^ (entry.0 << 8) ^ u64::from(bookie);
            let lost = ChaCha12Rng::seed_from_u64(own).random_bool(share);
            (message.kind == Kind::Add && lost).then_some(Delivery::Drop)
        });
    }

    /// What a writer leaves that died right after its change was committed.
    async fn empty_fragment(&self, ledger: LedgerId, metadata: LedgerMetadata, first: EntryId) {
        let mut ensemble = metadata.last_fragment().ensemble.clone();
        let members = self.world.bookies.iter().filter_map(|b| b.member());
        let Some(fresh) = members.into_iter().find(|m| !ensemble.contains(m)) else {
            return;
        };
        let place = ensemble.len() - 1;
        ensemble[place] = fresh;
        self.put(ledger, |metadata| {
            if first == EntryId(0) {
                metadata.fragments.clear();
            }
            metadata.fragments.push(Fragment { first, ensemble });
        })
        .await;
    }

    /// A recoverer dies in the middle, and another one right after it took its token.
    async fn stale_token(&mut self, ledger: LedgerId) {
        let process = self.process("s1");
        let (victim, kind) = (process.clone(), self.kind());
        self.world.network.script(move |message| {
            if message.client == "s1" && message.kind == kind {
                victim.kill();
            }
            None
        });
        let (world, book) = (self.world.clone(), self.book.clone());
        tokio::spawn(recover_all(world, process, book, Duration::ZERO));
        sleep(Duration::from_millis(400)).await;
        self.put(ledger, |metadata| {
            if metadata.closed.is_none() {
                metadata.state = LedgerState::InRecovery;
                metadata.recovery_token = FenceToken(metadata.recovery_token.0 + 1);
                metadata.recovery_nonce = [7; 16];
            }
        })
        .await;
    }

    fn kind(&mut self) -> Kind {
        let kinds = [Kind::Fence, Kind::RecoveryRead, Kind::WriteBack];
        *kinds.choose(&mut self.rng).expect("three kinds")
    }

    /// Two recoverers stand still in the middle and go on when everything goes wrong.
    async fn two_recoverers(&mut self) {
        let processes = [self.process("s1"), self.process("s2")];
        let kinds = [self.kind(), self.kind()];
        let stopped = processes.clone();
        self.world.network.script(move |message| {
            for (process, kind) in stopped.iter().zip(kinds) {
                if message.client == process.name() && message.kind == kind && !message.answer {
                    process.pause();
                }
            }
            None
        });
        for process in processes {
            let wait = Duration::from_millis(self.rng.random_range(0..60));
            let (world, book) = (self.world.clone(), self.book.clone());
            tokio::spawn(recover_all(world, process.clone(), book, wait));
            let until = Duration::from_millis(self.rng.random_range(300..3_000));
            tokio::spawn(async move {
                sleep(until).await;
                process.resume();
            });
        }
        sleep(Duration::from_millis(300)).await;
    }

    /// The writer misses a member, proposes, and does not learn what becomes of it; then it stands still.
    async fn unresolved(&mut self, process: Process) {
        let world = self.world.clone();
        let client = world.client(&process);
        let book = self.book.clone();
        let create = client.create(new_ledger(&world), |ledger| {
            book.open(ledger);
            Txn::default()
        });
        let Ok(writer) = create.await else {
            return;
        };
        let member = writer.metadata().last_fragment().ensemble[0].clone();
        let missed = world
            .bookies
            .iter()
            .find(|bookie| bookie.name() == member.bookie.as_str())
            .expect("members are bookies of the world")
            .clone();
        missed.hold_down(PowerLoss::No);
        let late = Duration::from_millis(self.rng.random_range(0..20_000));
        let fates = [
            Fate::UnknownLater(Late::After(late)),
            Fate::UnknownNever,
            Fate::UnknownCommitted,
        ];
        let fate = *fates.choose(&mut self.rng).expect("three fates");
        world.faults.plan_txns([fate]);
        for number in 0..6 {
            let body = Bytes::from(format!("unresolved {number}"));
            append(&world, &process, &self.book, &writer, number, body);
        }
        sleep(Duration::from_millis(self.rng.random_range(700..1_300))).await;
        process.pause();
        missed.start().await;
        let (book, until) = (self.book.clone(), self.rng.random_range(0..6_000));
        tokio::spawn(async move {
            sleep(Duration::from_millis(until)).await;
            process.resume();
            for number in 6..12 {
                let body = Bytes::from(format!("resumed {number}"));
                append(&world, &process, &book, &writer, number, body);
                sleep(Duration::from_millis(300)).await;
            }
        });
    }

    /// Changes the ledger's metadata as its owner or a recoverer might have.
    async fn put(&self, ledger: LedgerId, change: impl FnOnce(&mut LedgerMetadata)) {
        let key = ledger_key(ledger);
        let found = self.world.store.get(&key).await;
        let Some(found) = found.expect("the store itself never errs") else {
            return;
        };
        let mut metadata = LedgerMetadata::decode(&found.value).expect("it was decoded before");
        change(&mut metadata);
        let txn = Txn {
            compares: vec![],
            ops: vec![Op::put(key, metadata.encode())],
        };
        self.world
            .store
            .txn(txn)
            .await
            .expect("the store itself never errs");
    }
}
