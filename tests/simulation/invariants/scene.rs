//! What the tests of this folder share: a calm world with one ledger, its writer, recoverers, and the verdict at the end.

use std::sync::Arc;
use std::time::Duration;

use bookie_client::{LedgerWriter, NewLedger, RecoverError};
use bookie_metadata::{Compare, MetadataStore, Op, Txn};
use bytes::Bytes;
use hulse_proto::bookie::{Address, ReadClass};
use hulse_proto::id::{EntryId, LedgerId, Offset, OwnerEpoch, PartitionId, TopicId};
use hulse_proto::ledger::{LedgerKind, LedgerMetadata, LedgerState, Quorums, ledger_key};
use hulse_proto::mutant::Mutant;
use tests_harness::{Outcome, Process, SimBookie, World, WorldSetup};
use tokio::time::sleep;

use crate::ledger::{Book, append, judge};

/// Shapes of quorums: E, Qw, Qa.
pub const SHAPES: [Quorums; 6] = [
    quorums(3, 3, 2),
    quorums(2, 2, 2),
    quorums(3, 3, 3),
    quorums(4, 4, 3),
    quorums(3, 3, 1),
    quorums(3, 2, 2),
];

/// The usual one.
pub const USUAL: Quorums = quorums(3, 3, 2);

/// Long enough for a group of its own at each bookie, and for the mark behind it.
pub const REST: Duration = Duration::from_millis(120);

/// In short.
pub const fn quorums(ensemble: u32, write: u32, ack: u32) -> Quorums {
    Quorums {
        ensemble,
        write,
        ack,
    }
}

/// A world, and what its writers were told.
pub struct Scene {
    /// The world.
    pub world: Arc<World>,
    /// What the writers were told.
    pub book: Book,
}

impl Scene {
    /// Bookies `k1`, `k2` and so on serve; nothing goes wrong yet.
    pub async fn new(quorums: Quorums, bookies: u32) -> Self {
        Self::with(quorums, bookies, None).await
    }

    /// The same with a rule switched off.
    pub async fn with(quorums: Quorums, bookies: u32, mutant: Option<Mutant>) -> Self {
        let setup = WorldSetup {
            seed: 1,
            whole_trace: false,
            quorums,
            bookies,
            mutant,
        };
        let world = Arc::new(World::new(setup));
        world.start_bookies().await;
        Self {
            world,
            book: Book::default(),
        }
    }

    /// A new ledger; `None` when the process died or was refused.
    pub async fn try_create(&self, process: &Process) -> Option<LedgerWriter> {
        let new = NewLedger {
            kind: LedgerKind::Log,
            partition: PartitionId {
                topic: TopicId(self.world.seeds.id("topic")),
                index: 0,
            },
            owner_epoch: OwnerEpoch(1),
            base_offset: Offset(0),
        };
        let client = self.world.client(process);
        let create = client.create(new, |ledger| {
            self.book.open(ledger);
            Txn::default()
        });
        process.heard(create).await?.ok()
    }

    /// A new ledger.
    pub async fn create(&self, process: &Process) -> LedgerWriter {
        let created = self.try_create(process).await;
        created.expect("nothing goes wrong yet")
    }

    /// Appends; the book will say what became of it.
    pub fn send(&self, process: &Process, writer: &LedgerWriter) -> EntryId {
        let number = writer.appended_end();
        let body = Bytes::from(format!("entry {number}"));
        append(&self.world, process, &self.book, writer, number.0, body);
        number
    }

    /// Appends one by one, each in a group of its own at every bookie.
    pub async fn fill(&self, process: &Process, writer: &LedgerWriter, count: u64) {
        for _ in 0..count {
            self.send(process, writer);
            sleep(REST).await;
        }
    }

    /// Recovers.
    pub async fn recover(
        &self,
        process: &Process,
        ledger: LedgerId,
    ) -> Option<Result<LedgerMetadata, RecoverError>> {
        let client = self.world.client(process);
        let recovered = process
            .heard(client.recover(ledger, Txn::default()))
            .await?;
        if let Ok(metadata) = &recovered {
            let closed = metadata.closed.expect("a recovered ledger has an end");
            self.book.end(ledger, closed.end);
        }
        Some(recovered)
    }

    /// Recovers; it must succeed.
    pub async fn close(&self, name: &str, ledger: LedgerId, case: &str) -> LedgerMetadata {
        let process = Process::new(name);
        match self.recover(&process, ledger).await {
            Some(Ok(metadata)) => metadata,
            other => panic!("{case}: {other:?}\n{}", self.world.trace.text()),
        }
    }

    /// Entries that the writer was told are stored.
    pub fn confirmed(&self, ledger: LedgerId) -> u64 {
        let page = self.book.page(ledger);
        let stored = |outcome| matches!(outcome, Outcome::Ok(_));
        let all = page.appends.values();
        all.filter(|told| stored(told.outcome)).count() as u64
    }

    /// The ledger's metadata as they are; `None`: there are none.
    pub fn metadata(&self, ledger: LedgerId) -> Option<LedgerMetadata> {
        let all = self.world.store.ledgers();
        let found = all.into_iter().find(|(number, _)| *number == ledger.0);
        found.map(|(_, metadata)| metadata)
    }

    /// True once the ledger's end is decided.
    pub fn is_closed(&self, ledger: LedgerId) -> bool {
        self.metadata(ledger)
            .is_some_and(|metadata| metadata.state == LedgerState::Closed)
    }

    /// Changes a ledger's key as somebody else would.
    pub async fn change(&self, ledger: LedgerId, change: impl FnOnce(&mut LedgerMetadata)) {
        let (store, key) = (&self.world.store, ledger_key(ledger));
        let found = store.get(&key).await.expect("memory answers");
        let found = found.expect("the ledger exists");
        let mut metadata = LedgerMetadata::decode(&found.value).expect("it was written by us");
        change(&mut metadata);
        let txn = Txn {
            compares: vec![Compare::Version(key.clone(), found.version)],
            ops: vec![Op::put(key, metadata.encode())],
        };
        store.txn(txn).await.expect("memory answers");
    }

    /// The bookies at the positions of the last fragment, in order.
    pub fn members(&self, ledger: LedgerId) -> Vec<Arc<SimBookie>> {
        let metadata = self.metadata(ledger).expect("the ledger exists");
        let named = metadata.last_fragment().ensemble.iter();
        named
            .map(|member| self.bookie(member.bookie.as_str()))
            .collect()
    }

    /// A bookie by its name.
    pub fn bookie(&self, name: &str) -> Arc<SimBookie> {
        let mut all = self.world.bookies.iter();
        let found = all.find(|bookie| bookie.name() == name);
        found.expect("the world has it").clone()
    }

    /// How to address the ledger at a bookie.
    pub fn address(&self, bookie: &SimBookie, ledger: LedgerId) -> Address {
        Address {
            cell: self.world.cell,
            incarnation: bookie.member().expect("it was started").incarnation,
            ledger,
        }
    }

    /// Judges a closed ledger by everything that was told of it: storage.md §12, 1.
    pub async fn judge(&self, ledger: LedgerId, metadata: &LedgerMetadata) {
        let process = Process::new("reader");
        judge(&self.world, &process, &self.book, ledger, metadata).await;
    }

    /// Judges a ledger that was closed by an operator's word: everything that was confirmed is there all the same.
    pub async fn judge_accepted(&self, ledger: LedgerId, metadata: &LedgerMetadata) {
        let reader = self.world.client(&Process::new("reader"));
        let reader = reader.reader(ledger, metadata.clone());
        for (entry, told) in &self.book.page(ledger).appends {
            if !matches!(told.outcome, Outcome::Ok(_)) {
                continue;
            }
            let read = reader.read(*entry, entry.next(), 1 << 20, ReadClass::CatchUp);
            let found = read.await.ok().and_then(|found| found.into_iter().next());
            let same = found.is_some_and(|found| found.body() == told.body);
            self.world
                .violations
                .check(same, || format!("LOST entry {entry} of ledger {ledger}"));
        }
    }

    /// No oracle found anything.
    pub fn all_is_well(&self, case: &str) {
        let violations = self.world.violations.all();
        assert!(
            violations.is_empty(),
            "{case}\n{}\n{violations:#?}",
            self.world.trace.text()
        );
    }
}

/// True when a test's body finds something wrong, as it is to do with a rule switched off.
pub fn finds<T>(body: impl FnOnce() -> T) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err()
}

/// Every way to choose `count` of `0..of`, as sorted lists.
pub fn choices(of: usize, count: usize) -> Vec<Vec<usize>> {
    let masks = 0..1_u32 << of;
    let right = masks.filter(|mask| mask.count_ones() as usize == count);
    right
        .map(|mask| (0..of).filter(|index| mask >> index & 1 == 1).collect())
        .collect()
}

/// Every way to take one of `each` for each of `count` places.
pub fn products<T: Clone>(each: &[T], count: usize) -> Vec<Vec<T>> {
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        all = all
            .into_iter()
            .flat_map(|some| {
                each.iter().map(move |one| {
                    let mut more: Vec<T> = some.clone();
                    more.push(one.clone());
                    more
                })
            })
            .collect();
    }
    all
}
