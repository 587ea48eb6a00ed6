//! The oracle of chains (ARCHITECTURE D2, storage.md P6 as amended): at the moment when a ledger leaves a partition's chain, what is
//! left suffices for the next owner.
//!
//! A state ledger goes only when the rest of the state chain holds a complete snapshot; a log ledger only when it lies wholly below the
//! log start, is marked as being deleted, and when that snapshot covers its end, unless no entry of it tells of a producer. The log
//! start never goes back. A deleted topic is no concern of it: there the ledgers are gone before their links.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bookie_metadata::{Op, Txn};
use hulse_proto::bookie::{Address, ReadClass, ReadRequest};
use hulse_proto::entry::{Entry, Envelope};
use hulse_proto::id::{CellId, EntryId, LedgerId, Offset, PartitionId, TopicId};
use hulse_proto::ledger::{LedgerMetadata, LedgerState};
use hulse_proto::wire::metadata::{ChainChunk, ChainLink};
use prost::Message;
use serving_broker::state::{Cursors, StateFold};

use crate::bookie::SimBookie;
use crate::violations::Violations;

/// Ledgers that exist, as last written.
pub type Ledgers = BTreeMap<u64, LedgerMetadata>;

/// All chains of a world, as metadata show them.
pub struct Chains {
    cell: CellId,
    /// Weak, for each bookie knows the store that calls this.
    bookies: Vec<Weak<SimBookie>>,
    violations: Violations,
    chunks: Mutex<BTreeMap<String, ChainChunk>>,
}

impl Chains {
    /// None yet.
    pub fn new(cell: CellId, bookies: &[Arc<SimBookie>], violations: Violations) -> Self {
        Self {
            cell,
            bookies: bookies.iter().map(Arc::downgrade).collect(),
            violations,
            chunks: Mutex::default(),
        }
    }

    /// A transaction was committed; `ledgers` says what stands now.
    pub fn committed(&self, txn: &Txn, ledgers: impl FnOnce() -> Ledgers) {
        let changed: BTreeSet<String> = txn.ops.iter().filter_map(chain_of).collect();
        if changed.is_empty() {
            return;
        }
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let before: Vec<_> = changed
            .iter()
            .map(|chain| (links(&chunks, chain), log_start(&chunks, chain)))
            .collect();
        for op in &txn.ops {
            match op {
                Op::Put { key, value, .. } if key.starts_with("chain/") => {
                    let chunk = ChainChunk::decode(&value[..]).unwrap_or_default();
                    chunks.insert(key.clone(), chunk);
                }
                Op::Delete { key } => {
                    chunks.remove(key);
                }
                Op::Put { .. } => {}
            }
        }
        let mut known = None;
        let mut ledgers = Some(ledgers);
        for (chain, (before, started)) in changed.iter().zip(before) {
            let left = links(&chunks, chain);
            let starts = log_start(&chunks, chain);
            if starts.is_some() && starts < started {
                self.violations.add(format!(
                    "log start of {chain} went from {started:?} to {starts:?}"
                ));
            }
            let gone: Vec<ChainLink> = before
                .into_iter()
                .filter(|link| left.iter().all(|kept| kept.ledger != link.ledger))
                .collect();
            if gone.is_empty() {
                continue;
            }
            let known =
                known.get_or_insert_with(|| ledgers.take().map_or_else(Ledgers::new, |f| f()));
            let state = state_of(chain);
            self.judge((chain, starts), &gone, &links(&chunks, &state), known);
        }
    }

    fn judge(
        &self,
        (chain, log_start): (&str, Option<u64>),
        gone: &[ChainLink],
        state: &[ChainLink],
        ledgers: &Ledgers,
    ) {
        let gone = gone
            .iter()
            .filter(|link| ledgers.contains_key(&link.ledger));
        for link in gone {
            let covered = self.snapshot(chain, state, ledgers);
            let (ledger, metadata) = (link.ledger, &ledgers[&link.ledger]);
            let span = metadata
                .closed
                .map_or(u64::MAX, |closed| closed.offset_span);
            let log = !chain.ends_with("/state/");
            let end = link.base_offset.saturating_add(span);
            if log && log_start.is_some_and(|start| start < end) {
                self.violations.add(format!(
                    "ledger {ledger} left {chain}, it ends at {end}, and the log starts at {log_start:?}"
                ));
            }
            if log && metadata.state != LedgerState::Deleting {
                self.violations
                    .add(format!("ledger {ledger} left {chain} without a mark"));
            }
            let needed = !log || self.tells_of_producers(LedgerId(ledger), metadata);
            let wrong = match covered {
                _ if !needed => None,
                None => Some("without a snapshot".to_owned()),
                Some(Found::Unreadable) => None,
                Some(Found::At(applied)) => {
                    let short = log && applied.0 < end;
                    short.then(|| {
                        format!("with a snapshot up to {applied}, but the ledger ends at {end}")
                    })
                }
            };
            if let Some(wrong) = wrong {
                self.violations
                    .add(format!("ledger {ledger} left {chain} {wrong}"));
            }
        }
    }

    /// Whether a batch of an idempotent producer stands in a ledger, as far as anybody who is up can tell.
    fn tells_of_producers(&self, ledger: LedgerId, metadata: &LedgerMetadata) -> bool {
        let end = metadata.closed.map_or(0, |closed| closed.end.0);
        (0..end).map(EntryId).any(|entry| {
            let envelope = match self.body(ledger, metadata, entry) {
                Copies::Enough(stored) => Envelope::decode(&stored.envelope()).ok(),
                Copies::Hidden | Copies::Few => None,
            };
            envelope.is_some_and(|envelope| {
                let mut batches = envelope.batches.iter();
                batches.any(|batch| batch.producer_id.0 >= 0)
            })
        })
    }

    /// The newest complete snapshot that confirmed entries of the state chain hold.
    fn snapshot(&self, chain: &str, state: &[ChainLink], ledgers: &Ledgers) -> Option<Found> {
        let mut fold = StateFold::<Cursors>::new(partition_of(chain)?);
        for link in state {
            let Some(metadata) = ledgers.get(&link.ledger) else {
                continue;
            };
            let end = metadata.closed.map_or(u64::MAX, |closed| closed.end.0);
            for entry in (0..end).map(EntryId) {
                match self.body(LedgerId(link.ledger), metadata, entry) {
                    Copies::Enough(entry) => {
                        if let Err(error) = fold.fold(&entry.body()) {
                            self.violations.add(format!("{chain} holds {error}"));
                        }
                    }
                    Copies::Hidden => return Some(Found::Unreadable),
                    Copies::Few => break,
                }
            }
        }
        (fold.snapshots() > 0).then(|| Found::At(fold.finish().log.end))
    }

    /// An entry that Qa members hold. Members that are down, or whose disk lost it, held it for all that is known.
    fn body(&self, ledger: LedgerId, metadata: &LedgerMetadata, entry: EntryId) -> Copies {
        let (mut held, mut hidden, mut body) = (0, 0, None);
        for member in &metadata.fragment_of(entry).ensemble {
            let bookie = self.bookies.iter().filter_map(Weak::upgrade);
            let Some(bookie) = bookie
                .into_iter()
                .find(|bookie| bookie.name() == member.bookie.as_str())
            else {
                continue;
            };
            let to = Address {
                cell: self.cell,
                incarnation: member.incarnation,
                ledger,
            };
            let read = ReadRequest {
                to,
                first: entry,
                end: entry.next(),
                max_bytes: u32::MAX,
                class: ReadClass::CatchUp,
            };
            let found = bookie
                .look(&read)
                .ok()
                .and_then(|found| found.into_iter().next());
            match found {
                Some(stored) => {
                    held += 1;
                    body = Some(stored.entry);
                }
                None if !bookie.is_up() || bookie.has_lost(ledger, entry) => hidden += 1,
                None => {}
            }
        }
        match body {
            _ if held + hidden < metadata.quorums.ack as usize => Copies::Few,
            Some(body) => Copies::Enough(body),
            None => Copies::Hidden,
        }
    }
}

/// What the state chain says.
enum Found {
    /// The log below is in the snapshot.
    At(Offset),
    /// Nobody who is up can tell.
    Unreadable,
}

/// Copies of an entry.
enum Copies {
    Enough(Entry),
    Hidden,
    Few,
}

/// "chain/{topic}/{partition}/{kind}/" of a change.
fn chain_of(op: &Op) -> Option<String> {
    let (Op::Put { key, .. } | Op::Delete { key }) = op;
    let (chain, _) = key.strip_prefix("chain/").and(key.rsplit_once('/'))?;
    Some(format!("{chain}/"))
}

/// The state chain beside any chain.
fn state_of(chain: &str) -> String {
    let beside = chain.trim_end_matches('/').rsplit_once('/');
    format!("{}/state/", beside.map_or("", |(partition, _)| partition))
}

fn partition_of(chain: &str) -> Option<PartitionId> {
    let mut parts = chain.split('/').skip(1);
    let topic = TopicId(uuid::Uuid::parse_str(parts.next()?).ok()?);
    let index = parts.next()?.parse().ok()?;
    Some(PartitionId { topic, index })
}

/// The links of a chain, oldest first.
fn links(chunks: &BTreeMap<String, ChainChunk>, chain: &str) -> Vec<ChainLink> {
    mine(chunks, chain)
        .flat_map(|chunk| chunk.links.iter().copied())
        .collect()
}

/// Where the log of a chain begins; `None` when there is no chain, or none any more.
fn log_start(chunks: &BTreeMap<String, ChainChunk>, chain: &str) -> Option<u64> {
    mine(chunks, chain).map(|chunk| chunk.log_start).max()
}

fn mine<'a>(
    chunks: &'a BTreeMap<String, ChainChunk>,
    chain: &'a str,
) -> impl Iterator<Item = &'a ChainChunk> {
    let chunks = chunks.range(chain.to_owned()..);
    let mine = chunks.take_while(move |(key, _)| key.starts_with(chain));
    mine.map(|(_, chunk)| chunk)
}
