//! The store itself, and the oracle that looks at every committed change of a ledger or a partition (storage.md M1–M4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bookie_metadata::{
    BoxFuture, LeaseId, ListRequest, MemoryStore, MetadataError, MetadataStore, Op, Page, Revision,
    Txn, TxnOutcome, Versioned, WatchStream,
};
use bytes::Bytes;
use hulse_proto::id::{Incarnation, LedgerId, OwnerEpoch, PartitionId};
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Member, ledger_key};
use hulse_proto::wire::metadata::bookie::State;
use hulse_proto::wire::metadata::{Bookie, Partition};
use prost::Message;

use crate::chains::Chains;
use crate::counts::Counts;
use crate::departed::Departed;
use crate::trace;
use crate::trace::Trace;
use crate::violations::Violations;

/// Keys of bookies' registrations.
const BOOKIES: &str = "bookie/";

/// A memory store under observation.
pub struct ObservedStore {
    store: MemoryStore,
    trace: Trace,
    violations: Violations,
    /// Ledgers as last seen; `None`: removed, for ever.
    ledgers: Mutex<BTreeMap<String, Option<LedgerMetadata>>>,
    partitions: Mutex<BTreeMap<String, Partition>>,
    /// Members, and targets of repair, that a ledger's metadata named last, of removed ledgers too.
    named: Mutex<BTreeMap<u64, BTreeSet<Incarnation>>>,
    chains: OnceLock<Chains>,
    departed: OnceLock<Departed>,
    /// Bookies that are to have no more ledgers.
    leaving: Mutex<BTreeSet<String>>,
    counts: Counts,
}

impl ObservedStore {
    /// An empty one.
    pub fn new(trace: Trace, violations: Violations, counts: Counts) -> Self {
        Self {
            store: MemoryStore::new(),
            trace,
            violations,
            ledgers: Mutex::default(),
            partitions: Mutex::default(),
            named: Mutex::default(),
            chains: OnceLock::new(),
            departed: OnceLock::new(),
            leaving: Mutex::default(),
            counts,
        }
    }

    /// Every change of a chain is judged by `chains` from now on; the first one called with stays.
    pub fn judge_chains(&self, chains: Chains) {
        let _ = self.chains.set(chains);
    }

    /// Whatever goes is judged by `departed` from now on; the first one called with stays.
    pub fn judge_departures(&self, departed: Departed) {
        let _ = self.departed.set(departed);
    }

    /// True for a bookie that is drained, or was.
    pub fn is_leaving(&self, bookie: &str) -> bool {
        let leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.contains(bookie)
    }

    /// Whether the ledger's metadata named this member when they were written last: a member that was replaced keeps stray copies
    /// which a deletion does not reach (storage.md S1).
    pub fn names(&self, ledger: u64, member: Incarnation) -> bool {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named
            .get(&ledger)
            .is_some_and(|members| members.contains(&member))
    }

    /// Who won the newest epoch of a partition, and which it is.
    pub fn holder(&self, partition: PartitionId) -> Option<(String, OwnerEpoch)> {
        let key = format!("part/{}/{:05}", partition.topic, partition.index);
        let partitions = self
            .partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let found = partitions.get(&key)?;
        Some((found.owner.clone(), OwnerEpoch(found.owner_epoch)))
    }

    /// True while a ledger's end is not decided.
    pub fn is_undecided(&self, ledger: LedgerId) -> bool {
        let ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        let found = ledgers.get(&ledger_key(ledger));
        found
            .and_then(Option::as_ref)
            .is_some_and(|metadata| metadata.closed.is_none())
    }

    /// True while a fragment of a ledger that is not marked has this member.
    pub fn assigns(&self, ledger: LedgerId, member: &Member) -> bool {
        let ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        let found = ledgers.get(&ledger_key(ledger)).and_then(Option::as_ref);
        found.is_some_and(|metadata| {
            let mut fragments = metadata.fragments.iter();
            metadata.state != LedgerState::Deleting
                && fragments.any(|fragment| fragment.ensemble.contains(member))
        })
    }

    /// Every ledger that exists, as last written.
    pub fn ledgers(&self) -> Vec<(u64, LedgerMetadata)> {
        let ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        let found = ledgers.iter().filter_map(|(key, metadata)| {
            let number = key.rsplit('/').next()?.parse().ok()?;
            Some((number, metadata.clone()?))
        });
        found.collect()
    }

    fn committed(&self, op: &Op) {
        match op {
            Op::Put { key, value, .. } if key.starts_with("ledger/") => {
                match LedgerMetadata::decode(value) {
                    Ok(metadata) => self.ledger(key, Some(metadata)),
                    Err(error) => self
                        .violations
                        .add(format!("{key} was written with {error}")),
                }
            }
            Op::Delete { key } if key.starts_with("ledger/") => self.ledger(key, None),
            Op::Put { key, value, .. } if key.starts_with("part/") => self.partition(key, value),
            Op::Put { key, value, .. } if key.starts_with(BOOKIES) => {
                self.bookie(&key[BOOKIES.len()..], value);
            }
            Op::Delete { key } if key.starts_with("part/") => {
                let mut partitions = self
                    .partitions
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                partitions.remove(key);
            }
            _ => {}
        }
    }

    fn ledger(&self, key: &str, after: Option<LedgerMetadata>) {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(after) = &after {
            let end = after.closed.map(|closed| closed.end.0);
            let (state, token) = (after.state, after.recovery_token);
            trace!(self.trace, "{key} is {state:?} token {token} end {end:?}");
            if let Some(number) = key.rsplit('/').next().and_then(|n| n.parse().ok()) {
                let fragments = after.fragments.iter();
                let members = fragments.flat_map(|fragment| &fragment.ensemble);
                let targets = after.intents.iter().map(|intent| &intent.new);
                let members = members.chain(targets);
                let members = members.map(|member| member.incarnation).collect();
                let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
                named.insert(number, members);
            }
        } else {
            trace!(self.trace, "{key} is removed");
        }
        let before = ledgers.insert(key.to_owned(), after.clone());
        drop(ledgers);
        if let Some(what) = race(before.as_ref().and_then(Option::as_ref), after.as_ref()) {
            self.counts.add(what);
        }
        if after.is_none() {
            self.removed(key, before.as_ref().and_then(Option::as_ref));
        }
        if let Some(wrong) = wrong_change(before.as_ref(), after.as_ref()) {
            self.violations
                .add(format!("{key}: {wrong}; from {before:?} to {after:?}"));
        }
    }

    fn removed(&self, key: &str, last: Option<&LedgerMetadata>) {
        let number = key.rsplit('/').next().and_then(|n| n.parse().ok());
        if let (Some(departed), Some(number), Some(last)) = (self.departed.get(), number, last) {
            departed.removed(LedgerId(number), last);
        }
    }

    fn bookie(&self, name: &str, value: &Bytes) {
        let Ok(value) = Bookie::decode(&value[..]) else {
            let words = format!("bookie/{name} was written with other bytes");
            return self.violations.add(words);
        };
        let state = value.state();
        trace!(self.trace, "bookie/{name} is {state:?}");
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        match state {
            State::Active | State::ReadOnly | State::Unspecified => leaving.remove(name),
            State::Draining | State::Retired | State::Lost => leaving.insert(name.to_owned()),
        };
        drop(leaving);
        if let Some(departed) = self.departed.get() {
            departed.registered(name, &value, &self.ledgers());
        }
    }

    fn partition(&self, key: &str, value: &Bytes) {
        let Ok(after) = Partition::decode(&value[..]) else {
            return self
                .violations
                .add(format!("{key} was written with other bytes"));
        };
        trace!(
            self.trace,
            "{key} is of epoch {} owner {}", after.owner_epoch, after.owner
        );
        let mut partitions = self
            .partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = partitions.insert(key.to_owned(), after.clone());
        drop(partitions);
        if let Some(before) = before {
            let grows = after.owner_epoch > before.owner_epoch;
            self.violations
                .check(grows, || format!("{key} went from {before:?} to {after:?}"));
        }
    }
}

/// What another one does to a ledger while repair copies.
fn race(before: Option<&LedgerMetadata>, after: Option<&LedgerMetadata>) -> Option<&'static str> {
    let (before, after) = (before?, after?);
    let copies = !before.intents.is_empty();
    match (before.state, after.state) {
        (LedgerState::Open | LedgerState::InRecovery, LedgerState::InRecovery) if copies => {
            Some("recoveries that began while repair copied")
        }
        (LedgerState::InRecovery, LedgerState::Closed) if copies => {
            Some("recoveries that ended while repair copied")
        }
        (LedgerState::Closed, LedgerState::Deleting) if copies => {
            Some("deletions that began while repair copied")
        }
        _ => None,
    }
}

/// The owner epoch in a partition's key.
pub fn owner_epoch(value: &[u8]) -> Option<u32> {
    Some(Partition::decode(value).ok()?.owner_epoch)
}

/// What is wrong with a change of a ledger's key, if anything (M2, M4).
fn wrong_change(
    before: Option<&Option<LedgerMetadata>>,
    after: Option<&LedgerMetadata>,
) -> Option<&'static str> {
    use LedgerState::{Closed, Deleting, InRecovery, Open};
    let Some(before) = before else {
        return match after {
            Some(after) if after.state == Open => None,
            _ => Some("a ledger does not begin open"),
        };
    };
    let Some(before) = before else {
        return Some("a removed ledger came back");
    };
    let Some(after) = after else {
        return (before.state != Deleting).then_some("removed without being marked");
    };
    let legal = matches!(
        (before.state, after.state),
        (Open, Open | InRecovery | Closed)
            | (InRecovery, InRecovery | Closed)
            | (Closed, Closed | Deleting)
            | (Deleting, Deleting)
    );
    if !legal {
        return Some("its state moved backwards");
    }
    if before.closed.is_some() && before.closed != after.closed {
        return Some("the end of a closed ledger changed");
    }
    if after.recovery_token < before.recovery_token {
        return Some("its token went down");
    }
    let recovers_again = before.state == InRecovery
        && after.state == InRecovery
        && after.recovery_token == before.recovery_token;
    if recovers_again {
        return Some("a recovery began without a new token");
    }
    if is_swap(before, after) || is_cut(before, after) {
        return None;
    }
    let kept = before.fragments.len().saturating_sub(1);
    if after.fragments.len() < before.fragments.len()
        || after.fragments[..kept] != before.fragments[..kept]
    {
        return Some("an older fragment changed");
    }
    None
}

/// A close that records a loss may end before the last fragments begin.
fn is_cut(before: &LedgerMetadata, after: &LedgerMetadata) -> bool {
    let kept = after.fragments.len().min(before.fragments.len());
    before.closed.is_none()
        && after.closed.is_some()
        && after.loss.is_some()
        && after.fragments[..kept] == before.fragments[..kept]
}

/// Repair's change (X6): one member of one fragment, which is not the last one of a ledger that is not closed, and what is said of copies.
fn is_swap(before: &LedgerMetadata, after: &LedgerMetadata) -> bool {
    if before.fragments.len() != after.fragments.len() {
        return false;
    }
    let settled = match before.state {
        LedgerState::Closed => before.fragments.len(),
        _ => before.fragments.len() - 1,
    };
    let mut put_back = LedgerMetadata {
        intents: before.intents.clone(),
        repair_nonce: before.repair_nonce,
        degraded: before.degraded.clone(),
        ..after.clone()
    };
    let mut changed = 0;
    for (old, new) in before
        .fragments
        .iter()
        .zip(&mut put_back.fragments)
        .take(settled)
    {
        for (old, new) in old.ensemble.iter().zip(&mut new.ensemble) {
            if old != new {
                changed += 1;
                new.clone_from(old);
            }
        }
    }
    changed == 1 && put_back == *before
}

impl MetadataStore for ObservedStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        self.store.get(key)
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        Box::pin(async move {
            let outcome = self.store.txn(txn.clone()).await;
            if let Ok(TxnOutcome::Committed { .. }) = &outcome {
                txn.ops.iter().for_each(|op| self.committed(op));
                if let Some(chains) = self.chains.get() {
                    chains.committed(&txn, || self.ledgers().into_iter().collect());
                }
            }
            outcome
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        self.store.list(request)
    }

    fn watch(&self, prefix: &str, after: Revision) -> WatchStream {
        self.store.watch(prefix, after)
    }

    fn grant_lease(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, MetadataError>> {
        self.store.grant_lease(ttl)
    }

    fn renew_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        self.store.renew_lease(lease)
    }

    fn end_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        self.store.end_lease(lease)
    }
}

impl std::fmt::Debug for ObservedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ObservedStore")
    }
}
