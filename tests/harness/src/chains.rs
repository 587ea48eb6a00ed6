//! The oracle of chains (ARCHITECTURE D2, storage.md P6 as amended): at the moment when a ledger leaves a partition's chain, what is
//! left suffices for the next owner.
//!
//! A state ledger goes only when the rest of the state chain holds a complete snapshot; a log ledger only when that snapshot covers
//! its end. A deleted topic is no concern of it: there the ledgers are gone before their links.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bookie_metadata::{Op, Txn};
use hulse_proto::bookie::{Address, ReadClass, ReadRequest};
use hulse_proto::id::{CellId, EntryId, LedgerId, Offset, PartitionId, TopicId};
use hulse_proto::ledger::LedgerMetadata;
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
    chunks: Mutex<BTreeMap<String, Vec<ChainLink>>>,
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
        let before: Vec<Vec<ChainLink>> = changed.iter().map(|c| links(&chunks, c)).collect();
        for op in &txn.ops {
            match op {
                Op::Put { key, value, .. } if key.starts_with("chain/") => {
                    let links = ChainChunk::decode(&value[..]).unwrap_or_default().links;
                    chunks.insert(key.clone(), links);
                }
                Op::Delete { key } => {
                    chunks.remove(key);
                }
                Op::Put { .. } => {}
            }
        }
        let mut known = None;
        let mut ledgers = Some(ledgers);
        for (chain, before) in changed.iter().zip(before) {
            let left = links(&chunks, chain);
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
            self.judge(chain, &gone, &links(&chunks, &state), known);
        }
    }

    fn judge(&self, chain: &str, gone: &[ChainLink], state: &[ChainLink], ledgers: &Ledgers) {
        let gone = gone
            .iter()
            .filter(|link| ledgers.contains_key(&link.ledger));
        for link in gone {
            let covered = self.snapshot(chain, state, ledgers);
            let (ledger, metadata) = (link.ledger, &ledgers[&link.ledger]);
            let span = metadata
                .closed
                .map_or(u64::MAX, |closed| closed.offset_span);
            let wrong = match covered {
                None => Some("without a snapshot".to_owned()),
                Some(Found::Unreadable) => None,
                Some(Found::At(applied)) => {
                    let end = link.base_offset.saturating_add(span);
                    let short = !chain.ends_with("/state/") && applied.0 < end;
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
                    Copies::Enough(body) => {
                        if let Err(error) = fold.fold(&body) {
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
                    body = Some(stored.entry.body());
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
    Enough(bytes::Bytes),
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
fn links(chunks: &BTreeMap<String, Vec<ChainLink>>, chain: &str) -> Vec<ChainLink> {
    let chunks = chunks.range(chain.to_owned()..);
    let mine = chunks.take_while(|(key, _)| key.starts_with(chain));
    mine.flat_map(|(_, links)| links.iter().copied()).collect()
}
