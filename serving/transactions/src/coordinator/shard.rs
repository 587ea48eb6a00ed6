//! All transactional ids of a shard, the one way they change, and their snapshot.
//!
//! A snapshot is a version (1 byte, 1), a count u32, and ids in order: producer, previous id i64, next id i64, last epoch i16, time-out
//! u32, state u8, version of transactions u8, serial u32, started at i64, updated at i64, participants. Little-endian, frozen.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use hulse_proto::id::ProducerId;

use super::change::{Change, Delta, get_participants, put_participants};
use super::transaction::{Transaction, TxnState};
use crate::fields::{
    RecordError, count, end, field, get_i16, get_i64, get_producer, get_text, get_u8, get_u32,
    get_version, put_producer, put_text, put_version,
};
use crate::limits::{IDS_MAX, SNAPSHOT_BYTES_MAX};
use crate::marker;

/// The least that an id takes in a snapshot. Bytes.
const ID_BYTES: usize = 60;

const STATES: [TxnState; 6] = [
    TxnState::Empty,
    TxnState::Ongoing,
    TxnState::PrepareCommit,
    TxnState::PrepareAbort,
    TxnState::CompleteCommit,
    TxnState::CompleteAbort,
];

/// The transactional ids of a shard. Changes only by [`TransactionsShard::apply`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransactionsShard {
    ids: BTreeMap<Arc<str>, Transaction>,
}

impl TransactionsShard {
    /// One of them.
    pub fn get(&self, id: &str) -> Option<&Transaction> {
        self.ids.get(id)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Transaction)> {
        self.ids.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Folds a delta in.
    pub fn apply(&mut self, delta: &Delta) {
        for (id, change) in &delta.0 {
            self.apply_change(id, change);
        }
    }

    /// Folds one change in. One that its id is not there for, or not in a state for, changes nothing.
    pub(super) fn apply_change(&mut self, id: &Arc<str>, change: &Change) {
        if let Change::Began {
            at,
            producer,
            timeout_ms,
            ..
        } = change
        {
            let new = || Transaction::new(producer.id, *timeout_ms, *at);
            let txn = self.ids.entry(id.clone()).or_insert_with(new);
            return txn.apply(change);
        }
        if *change == Change::Gone {
            self.ids.remove(id);
        } else if let Some(txn) = self.ids.get_mut(id) {
            txn.apply(change);
        }
    }

    /// The bytes of a snapshot.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        put_version(&mut out);
        out.put_u32_le(self.ids.len() as u32);
        for (id, txn) in &self.ids {
            put_text(&mut out, id);
            put_transaction(&mut out, txn);
        }
        out.freeze()
    }

    /// Reads a snapshot.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are none.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() > SNAPSHOT_BYTES_MAX {
            return Err(field("bytes of a snapshot", bytes.len() as u64));
        }
        get_version(&mut bytes)?;
        let count = count(&mut bytes, ID_BYTES)?;
        if count > IDS_MAX {
            return Err(field("number of transactional ids", count as u64));
        }
        let mut state = Self::default();
        for _ in 0..count {
            let id = get_text(&mut bytes)?;
            state.ids.insert(id, get_transaction(&mut bytes)?);
        }
        end(bytes)?;
        Ok(state)
    }
}

impl Transaction {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Began {
                at,
                producer,
                previous,
                last_epoch,
                timeout_ms,
            } if TxnState::Empty.may_follow(Some(self.state)) => {
                self.producer = *producer;
                (self.previous, self.last_epoch) = (*previous, *last_epoch);
                (self.timeout_ms, self.updated_at) = (*timeout_ms, *at);
                self.state = TxnState::Empty;
                self.started_at = 0;
            }
            Change::Added {
                at,
                version,
                participants,
            } if TxnState::Ongoing.may_follow(Some(self.state)) => {
                if self.state != TxnState::Ongoing {
                    self.state = TxnState::Ongoing;
                    self.started_at = *at;
                    // A serial that comes round begins at 1: 0 says "none".
                    self.serial = self.serial.wrapping_add(1).max(1);
                }
                (self.version, self.updated_at) = (*version, *at);
                for (participant, parts) in participants {
                    let known = self.participants.entry(*participant).or_default();
                    *known = known.with(*parts);
                }
            }
            Change::Decided {
                at,
                commit,
                version,
                producer,
                next,
                last_epoch,
            } => {
                let state = match commit {
                    true => TxnState::PrepareCommit,
                    false => TxnState::PrepareAbort,
                };
                if state.may_follow(Some(self.state)) {
                    self.state = state;
                    (self.version, self.producer, self.next) = (*version, *producer, *next);
                    (self.last_epoch, self.updated_at) = (*last_epoch, *at);
                }
            }
            Change::Completed { at } if self.state.is_preparing() => {
                self.state = match self.state {
                    TxnState::PrepareCommit => TxnState::CompleteCommit,
                    _ => TxnState::CompleteAbort,
                };
                if self.next != ProducerId::NONE {
                    self.previous = self.producer.id;
                }
                self.producer = self.after_completion();
                self.next = ProducerId::NONE;
                self.participants.clear();
                (self.started_at, self.updated_at) = (0, *at);
            }
            _ => {}
        }
    }
}

fn put_transaction(out: &mut BytesMut, txn: &Transaction) {
    put_producer(out, txn.producer);
    out.put_i64_le(txn.previous.0);
    out.put_i64_le(txn.next.0);
    out.put_i16_le(txn.last_epoch);
    out.put_u32_le(txn.timeout_ms);
    let state = STATES.iter().position(|state| *state == txn.state);
    out.put_u8(state.unwrap_or_default() as u8);
    marker::put_version(out, txn.version);
    out.put_u32_le(txn.serial);
    out.put_i64_le(txn.started_at);
    out.put_i64_le(txn.updated_at);
    put_participants(out, &txn.participants);
}

fn get_transaction(bytes: &mut &[u8]) -> Result<Transaction, RecordError> {
    let producer = get_producer(bytes)?;
    let (previous, next) = (ProducerId(get_i64(bytes)?), ProducerId(get_i64(bytes)?));
    let (last_epoch, timeout_ms) = (get_i16(bytes)?, get_u32(bytes)?);
    let state = get_u8(bytes)?;
    let state = *STATES
        .get(usize::from(state))
        .ok_or_else(|| field("state of a transaction", state.into()))?;
    Ok(Transaction {
        producer,
        previous,
        next,
        last_epoch,
        timeout_ms,
        state,
        version: marker::get_version(bytes)?,
        serial: get_u32(bytes)?,
        started_at: get_i64(bytes)?,
        updated_at: get_i64(bytes)?,
        participants: get_participants(bytes)?,
    })
}
