//! Entries, configurations, a metadata store of one map, and a step-wise node that remembers what it confirmed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bookie_metadata::{
    BoxFuture, Compare, LeaseId, ListRequest, MetadataError, MetadataStore, Op, Page, Revision,
    Txn, TxnOutcome, Versioned, WatchStream,
};
use bytes::Bytes;
use hulse_proto::bookie::{
    AddRequest, Address, BookieError, FenceRequest, Origin, ReadClass, ReadRequest,
    RecoveryReadRequest,
};
use hulse_proto::entry::{Entry, EntryClass, EntryKind, Envelope, NewEntry, Totals};
use hulse_proto::id::{
    CellId, EntryId, FenceToken, LedgerId, NodeName, Offset, OwnerEpoch, PartitionId, TopicId,
};
use hulse_proto::ledger::{
    Fragment, LEDGER_IDS_KEY, LedgerKind, LedgerMetadata, LedgerState, Member, Quorums, ledger_key,
};
use hulse_proto::time::WallClock;
use prometheus_client::registry::Registry;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use uuid::Uuid;

use crate::core::{Ticket, Verdict};
use crate::disk::Disk;
use crate::disk::memory::{MemoryDisk, Survival};
use crate::step::{StepAnswer, StepNode, StepOutput};
use crate::{NodeConfig, NodeMetrics, NodeSeams, Threads};

pub const CELL: CellId = CellId(Uuid::from_u128(0xce11));

pub fn config() -> NodeConfig {
    let mut config = NodeConfig::new(CELL, NodeName::new("bookie-1").unwrap());
    config.format_if_empty = true;
    config.file_bytes = 1 << 20;
    config.queue_bytes_max = 1 << 20;
    config
}

pub fn inline() -> NodeConfig {
    NodeConfig {
        threads: Threads::Inline,
        ..config()
    }
}

pub fn entry(ledger: u64, number: u64, body_bytes: usize) -> Entry {
    entry_of(EntryClass::Data, ledger, number, body_bytes)
}

pub fn entry_of(class: EntryClass, ledger: u64, number: u64, body_bytes: usize) -> Entry {
    let body: Vec<u8> = (0..body_bytes)
        .map(|at| (at as u64 * 31 + number * 7 + ledger) as u8)
        .collect();
    let envelope = Envelope {
        kind: EntryKind::Data,
        append_time: 1,
        running_max_timestamp: 1,
        batches: Vec::new(),
    };
    NewEntry {
        class,
        first_offset: Offset(number),
        offset_span: 1,
        record_count: 1,
        envelope: envelope.encode(),
        body: vec![Bytes::from(body)],
    }
    .seal(LedgerId(ledger), EntryId(number), Totals::default())
}

pub fn add(to: Address, entry: Entry) -> AddRequest {
    AddRequest {
        to,
        origin: Origin::Normal,
        confirmed_end: entry.header().entry,
        entry,
        timeout: Duration::from_secs(10),
    }
}

pub fn recovery_add(to: Address, entry: Entry, token: u64) -> AddRequest {
    AddRequest {
        origin: Origin::Recovery {
            token: FenceToken(token),
        },
        confirmed_end: EntryId(0),
        ..add(to, entry)
    }
}

pub fn read(to: Address, first: u64, end: u64) -> ReadRequest {
    ReadRequest {
        to,
        first: EntryId(first),
        end: EntryId(end),
        max_bytes: 1 << 20,
        class: ReadClass::CatchUp,
    }
}

pub struct Noon;

impl WallClock for Noon {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }
}

pub fn seams(disk: Arc<dyn Disk>, metadata: Arc<MapStore>, seed: u64) -> NodeSeams {
    NodeSeams {
        disk,
        metadata,
        clock: Arc::new(Noon),
        rng: ChaCha12Rng::seed_from_u64(seed),
        metrics: NodeMetrics::new(&mut Registry::default()),
    }
}

/// Metadata in one map. May be told to be silent.
#[derive(Default)]
pub struct MapStore {
    state: Mutex<MapState>,
}

#[derive(Default)]
struct MapState {
    items: BTreeMap<String, Versioned>,
    revision: u64,
    silent: bool,
    gets: BTreeMap<String, u64>,
}

impl MapStore {
    pub fn silence(&self, silent: bool) {
        self.state.lock().unwrap().silent = silent;
    }

    pub fn put(&self, key: &str, value: Bytes) {
        let mut state = self.state.lock().unwrap();
        state.put(key, value, None);
    }

    pub fn remove(&self, key: &str) {
        self.state.lock().unwrap().items.remove(key);
    }

    pub fn value(&self, key: &str) -> Option<Bytes> {
        let state = self.state.lock().unwrap();
        state.items.get(key).map(|item| item.value.clone())
    }

    /// How often a key was read.
    pub fn gets(&self, key: &str) -> u64 {
        self.state
            .lock()
            .unwrap()
            .gets
            .get(key)
            .copied()
            .unwrap_or(0)
    }

    pub fn ledger(&self, ledger: u64, state: LedgerState, member: &Member) {
        let value = LedgerMetadata {
            kind: LedgerKind::Log,
            partition: PartitionId {
                topic: TopicId(Uuid::from_u128(1)),
                index: 0,
            },
            owner_epoch: OwnerEpoch(1),
            quorums: Quorums {
                ensemble: 1,
                write: 1,
                ack: 1,
            },
            state,
            recovery_token: FenceToken(u64::from(state != LedgerState::Open)),
            fragments: vec![Fragment {
                first: EntryId(0),
                ensemble: vec![member.clone()],
            }],
            base_offset: Offset(0),
            writer_nonce: [0; 16],
            recovery_nonce: [0; 16],
            repair_nonce: [0; 16],
            tier: None,
            intents: Vec::new(),
            closed: None,
            degraded: Vec::new(),
            loss: None,
            created_at: 0,
        };
        self.put(&ledger_key(LedgerId(ledger)), value.encode());
        let given = hulse_proto::wire::metadata::Counter { next: 1 << 40 };
        self.put(LEDGER_IDS_KEY, prost::Message::encode_to_vec(&given).into());
    }
}

impl MapState {
    fn put(&mut self, key: &str, value: Bytes, lease: Option<LeaseId>) {
        self.revision += 1;
        let version = Revision(self.revision);
        let item = Versioned {
            key: key.to_owned(),
            value,
            version,
            lease,
        };
        self.items.insert(key.to_owned(), item);
    }
}

fn silent<T>() -> Result<T, MetadataError> {
    Err(MetadataError::Unavailable {
        why: "silent".to_owned(),
    })
}

impl MetadataStore for MapStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        let mut state = self.state.lock().unwrap();
        *state.gets.entry(key.to_owned()).or_default() += 1;
        let answer = match state.silent {
            true => silent(),
            false => Ok(state.items.get(key).cloned()),
        };
        Box::pin(async move {
            tokio::task::yield_now().await;
            answer
        })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        let mut state = self.state.lock().unwrap();
        let holds = txn.compares.iter().all(|compare| match compare {
            Compare::Absent(key) => !state.items.contains_key(key),
            Compare::Exists(key) => state.items.contains_key(key),
            Compare::Version(key, version) => state
                .items
                .get(key)
                .is_some_and(|item| item.version == *version),
        });
        let answer = if state.silent {
            silent()
        } else if !holds {
            let current = txn
                .compares
                .iter()
                .map(|c| state.items.get(c.key()).cloned())
                .collect();
            Ok(TxnOutcome::Conflict { current })
        } else {
            for op in txn.ops {
                match op {
                    Op::Put { key, value, lease } => state.put(&key, value, lease),
                    Op::Delete { key } => drop(state.items.remove(&key)),
                }
            }
            Ok(TxnOutcome::Committed {
                revision: Revision(state.revision),
            })
        };
        Box::pin(std::future::ready(answer))
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        let state = self.state.lock().unwrap();
        let items = state
            .items
            .values()
            .filter(|item| item.key.starts_with(&request.prefix));
        let items = items.cloned().collect();
        let page = Page {
            items,
            revision: Revision(state.revision),
            more: false,
        };
        Box::pin(std::future::ready(if state.silent {
            silent()
        } else {
            Ok(page)
        }))
    }

    fn watch(&self, _prefix: &str, _after: Revision) -> WatchStream {
        Box::pin(futures::stream::empty())
    }

    fn grant_lease(&self, _ttl: Duration) -> BoxFuture<'_, Result<LeaseId, MetadataError>> {
        Box::pin(std::future::ready(Ok(LeaseId(1))))
    }

    fn renew_lease(&self, _lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn end_lease(&self, _lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A step-wise node over memory, with what it confirmed.
pub struct Rig {
    pub disk: MemoryDisk,
    pub node: StepNode,
    pub confirmed: BTreeSet<(u64, u64)>,
    bodies: BTreeMap<(u64, u64), usize>,
    tickets: BTreeMap<Ticket, (u64, u64)>,
}

impl Rig {
    pub fn new(config: NodeConfig) -> Self {
        Self::on(MemoryDisk::default(), config, &[])
    }

    pub fn on(disk: MemoryDisk, config: NodeConfig, scope: &[LedgerId]) -> Self {
        let node = StepNode::open(config, Arc::new(disk.clone()), 1, scope).unwrap();
        Self::with(disk, node)
    }

    /// Such a node, opened already.
    pub fn with(disk: MemoryDisk, node: StepNode) -> Self {
        Self {
            disk,
            node,
            confirmed: BTreeSet::new(),
            bodies: BTreeMap::new(),
            tickets: BTreeMap::new(),
        }
    }

    /// The same disk after a crash, in another boot.
    pub fn reopen(self, config: NodeConfig, survival: Survival<'_>, scope: &[LedgerId]) -> Self {
        drop(self.node);
        self.disk.crash(survival);
        let node = StepNode::open(config, Arc::new(self.disk.clone()), 1, scope).unwrap();
        Self {
            node,
            tickets: BTreeMap::new(),
            ..self
        }
    }

    /// The same disk after a clean stop.
    pub fn restart(self, config: NodeConfig, scope: &[LedgerId]) -> Self {
        self.node.close().unwrap();
        let node = StepNode::open(config, Arc::new(self.disk.clone()), 1, scope).unwrap();
        Self {
            node,
            tickets: BTreeMap::new(),
            ..self
        }
    }

    pub fn to(&self, ledger: u64) -> Address {
        self.node.address(LedgerId(ledger))
    }

    /// Submits an add of the writer; metadata says OPEN at once.
    pub fn add(&mut self, ledger: u64, number: u64, body_bytes: usize) -> Ticket {
        self.bodies.insert((ledger, number), body_bytes);
        let request = add(self.to(ledger), entry(ledger, number, body_bytes));
        let (ticket, output) = self.node.add(request);
        self.tickets.insert(ticket, (ledger, number));
        let verify = output.verify.clone();
        self.take(output);
        for ledger in verify {
            let output = self.node.verified(ledger, Verdict::Open);
            self.take(output);
        }
        ticket
    }

    /// Remembers confirmed adds; gives the other answers.
    pub fn take(&mut self, output: StepOutput) -> Vec<(Ticket, StepAnswer)> {
        let mut others = Vec::new();
        for (ticket, answer) in output.answers {
            match (self.tickets.get(&ticket), answer) {
                (Some(key), StepAnswer::Add(Ok(()))) => drop(self.confirmed.insert(*key)),
                (_, answer) => others.push((ticket, answer)),
            }
        }
        others
    }

    pub fn settle(&mut self) -> Vec<(Ticket, StepAnswer)> {
        let output = self.node.settle();
        self.take(output)
    }

    /// The disk holds such an entry from before.
    pub fn expect(&mut self, ledger: u64, number: u64, body_bytes: usize) {
        self.bodies.insert((ledger, number), body_bytes);
    }

    /// Adds and stores.
    pub fn store(&mut self, ledger: u64, numbers: std::ops::Range<u64>, body_bytes: usize) {
        for number in numbers {
            self.add(ledger, number, body_bytes);
            assert!(self.settle().is_empty());
        }
    }

    /// True when the entry can be read; then it is right.
    pub fn has(&mut self, ledger: u64, number: u64) -> bool {
        let request = read(self.to(ledger), number, number + 1);
        match self.node.read(&request) {
            Ok(found) => {
                let right = entry(ledger, number, self.bodies[&(ledger, number)]);
                assert_eq!(found[0].entry.header(), right.header());
                assert_eq!(found[0].entry.body(), right.body());
                true
            }
            Err(BookieError::NotHere { .. } | BookieError::Damaged { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Everything confirmed is there.
    pub fn check(&mut self) {
        for (ledger, number) in self.confirmed.clone() {
            assert!(
                self.has(ledger, number),
                "confirmed entry {number} of ledger {ledger} is lost"
            );
        }
    }

    pub fn fence(&mut self, ledger: u64, token: u64) -> StepAnswer {
        let to = self.to(ledger);
        let (_, output) = self.node.fence(FenceRequest {
            to,
            token: FenceToken(token),
        });
        self.answer(output)
    }

    pub fn recovery_read(&mut self, ledger: u64, token: u64, entry: u64) -> StepAnswer {
        let to = self.to(ledger);
        let (token, entry) = (FenceToken(token), EntryId(entry));
        let (_, output) = self
            .node
            .recovery_read(RecoveryReadRequest { to, token, entry });
        self.answer(output)
    }

    /// Deleted for ever, remembered as such or not.
    pub fn is_dead(&self, ledger: u64) -> bool {
        let state = self.node.core().state();
        match state.ledgers.get(&LedgerId(ledger)) {
            Some(known) => known.deleted,
            None => LedgerId(ledger) < state.dead_below,
        }
    }

    pub fn delete(&mut self, ledger: u64) -> StepAnswer {
        let (_, output) = self.node.delete(self.to(ledger));
        self.answer(output)
    }

    /// The one answer that comes of a request, after the log has done its work.
    pub fn answer(&mut self, output: StepOutput) -> StepAnswer {
        let mut answers = self.take(output);
        answers.extend(self.settle());
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0).1
    }
}

/// The newest log file with groups in it, and its name.
pub fn log_files(disk: &MemoryDisk) -> Vec<String> {
    let names = disk.list().unwrap();
    names
        .into_iter()
        .filter(|name| name.ends_with(".log"))
        .collect()
}

/// Adds a line to what `tests/run` sums up.
pub fn report(line: &str) {
    println!("{line}");
    if let Some(path) = std::env::var_os("HULSE_TEST_REPORT") {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        file.and_then(|mut file| {
            std::io::Write::write_all(&mut file, format!("{line}\n").as_bytes())
        })
        .expect("the report file can be written");
    }
}
