//! The pair (L, M), its snapshots, and the replay of a state chain.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hulse_proto::entry::Envelope;
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId};
use hulse_proto::mutant::{Mutant, Mutation};

use super::cursors::Cursors;
use super::log_state::LogState;
use super::meta::MetaState;
use super::record::{MetaRecord, MetaRecordKind, RecordError};

/// Largest part of a snapshot in one entry (ARCHITECTURE D3).
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Largest snapshot that a replay collects.
const SNAPSHOT_BYTES_MAX: usize = 1 << 30;

/// Everything a partition remembers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PartitionState<M> {
    /// L.
    pub log: LogState,
    /// M.
    pub meta: M,
    /// Number of the last delta in M.
    pub state_applied: u64,
}

/// Why a state chain cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// An entry is not a META record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// It belongs to another partition or another life of the topic.
    #[error("state of partition {found} stands in the chain of {expected}")]
    Foreign {
        /// Found.
        found: PartitionId,
        /// Whose chain it is.
        expected: PartitionId,
    },
    /// A delta is missing.
    #[error("delta {found} follows delta {applied}: one is missing")]
    Gap {
        /// The last one applied.
        applied: u64,
        /// The next one found.
        found: u64,
    },
}

impl<M: MetaState> PartitionState<M> {
    /// Folds a confirmed log entry in.
    pub fn apply_log(
        &mut self,
        first: Offset,
        end: Offset,
        envelope: &Envelope,
        producer_expiry: Duration,
    ) {
        self.log.apply(first, end, envelope, producer_expiry);
    }

    /// Folds a confirmed delta in.
    pub fn apply_meta(&mut self, number: u64, delta: &M::Delta) {
        self.meta.apply(delta);
        self.state_applied = number;
    }

    /// A snapshot of this point, as bodies of META entries to be appended one right after the other.
    pub fn snapshot(&self, partition: PartitionId, epoch: OwnerEpoch) -> Vec<MetaRecord> {
        self.snapshot_in_chunks(partition, epoch, CHUNK_BYTES_MAX)
    }

    pub(super) fn snapshot_in_chunks(
        &self,
        partition: PartitionId,
        epoch: OwnerEpoch,
        chunk_bytes: usize,
    ) -> Vec<MetaRecord> {
        let mut all = BytesMut::new();
        self.log.encode_into(&mut all);
        all.extend_from_slice(&self.meta.encode());
        let all = all.freeze();
        let count = all.len().div_ceil(chunk_bytes).max(1);
        let chunks = (0..count).map(|index| {
            let from = index * chunk_bytes;
            let bytes = all.slice(from..all.len().min(from + chunk_bytes));
            let kind = MetaRecordKind::Chunk {
                log_applied: self.log.end,
                state_applied: self.state_applied,
                index: index as u32,
                count: count as u32,
                bytes,
            };
            MetaRecord {
                partition,
                epoch,
                kind,
            }
        });
        chunks.collect()
    }

    fn restore(bytes: &[u8], state_applied: u64) -> Result<Self, RecordError> {
        let mut rest = bytes;
        let log = LogState::decode_from(&mut rest)?;
        let meta = M::decode(rest)?;
        Ok(Self {
            log,
            meta,
            state_applied,
        })
    }
}

impl PartitionState<Cursors> {
    /// From here on the log is held by subscriptions; `None`: by none (serving.md B9.3). Counts what is durable only.
    pub fn held_from(&self) -> Option<Offset> {
        self.meta.held_from()
    }
}

/// A replay of a state chain: META entries in order in, the newest complete snapshot and the deltas after it out.
#[derive(Debug)]
pub struct StateFold<M> {
    partition: PartitionId,
    state: PartitionState<M>,
    snapshots: u64,
    collecting: Option<Collecting>,
    /// An entry is recorded as lost: deltas may be missing before the next one.
    after_loss: bool,
    deltas_lost: u64,
    mutation: Mutation,
}

/// A snapshot whose chunks are still coming.
#[derive(Debug)]
struct Collecting {
    log_applied: Offset,
    state_applied: u64,
    next: u32,
    count: u32,
    epoch: OwnerEpoch,
    bytes: BytesMut,
}

impl<M: MetaState> StateFold<M> {
    /// Begins with the empty state at the start of the log.
    pub fn new(partition: PartitionId) -> Self {
        Self {
            partition,
            state: PartitionState::default(),
            snapshots: 0,
            collecting: None,
            after_loss: false,
            deltas_lost: 0,
            mutation: Mutation::default(),
        }
    }

    /// The same with a rule switched off.
    #[must_use]
    pub fn mutated(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    /// Folds the next META entry's body.
    ///
    /// # Errors
    /// [`StateError`]: the chain is damaged, and nothing may be served on its ground.
    pub fn fold(&mut self, body: &Bytes) -> Result<(), StateError> {
        let record = MetaRecord::decode(body)?;
        if record.partition != self.partition {
            return Err(StateError::Foreign {
                found: record.partition,
                expected: self.partition,
            });
        }
        match record.kind {
            MetaRecordKind::Delta { number, bytes } => self.fold_delta(number, &bytes),
            MetaRecordKind::Chunk {
                log_applied,
                state_applied,
                index,
                count,
                bytes,
            } => {
                let start = Collecting {
                    log_applied,
                    state_applied,
                    next: 0,
                    count,
                    epoch: record.epoch,
                    bytes: BytesMut::new(),
                };
                self.fold_chunk(start, index, &bytes)
            }
        }
    }

    /// An entry is missing here, which an operator has given up (storage.md R14): a snapshot that it was part of is void, and what
    /// deltas it had is not known. The next delta or snapshot goes on.
    pub fn lost(&mut self) {
        self.collecting = None;
        self.after_loss = true;
    }

    /// How many deltas were missing after lost entries and are in no later snapshot.
    pub fn deltas_lost(&self) -> u64 {
        self.deltas_lost
    }

    fn fold_delta(&mut self, number: u64, bytes: &[u8]) -> Result<(), StateError> {
        self.collecting = None; // A delta behind an incomplete snapshot: its writer died; the snapshot is void.
        if number <= self.state.state_applied {
            return Ok(());
        }
        let missing = number - self.state.state_applied - 1;
        if missing > 0 && !self.after_loss {
            return Err(StateError::Gap {
                applied: self.state.state_applied,
                found: number,
            });
        }
        self.after_loss = false;
        self.deltas_lost += missing;
        self.state.apply_meta(number, &M::decode_delta(bytes)?);
        Ok(())
    }

    fn fold_chunk(
        &mut self,
        start: Collecting,
        index: u32,
        bytes: &[u8],
    ) -> Result<(), StateError> {
        let follows = self.collecting.as_ref().is_some_and(|now| {
            (
                now.next,
                now.count,
                now.epoch,
                now.log_applied,
                now.state_applied,
            ) == (
                index,
                start.count,
                start.epoch,
                start.log_applied,
                start.state_applied,
            )
        });
        if !follows {
            self.collecting = (index == 0).then_some(start);
        }
        let Some(now) = &mut self.collecting else {
            return Ok(());
        };
        if now.bytes.len() + bytes.len() > SNAPSHOT_BYTES_MAX {
            return Err(RecordError::Field {
                field: "snapshot bytes",
                found: now.bytes.len() as u64,
            }
            .into());
        }
        now.bytes.extend_from_slice(bytes);
        now.next += 1;
        if now.next == now.count {
            self.state = PartitionState::restore(&now.bytes, now.state_applied)?;
            if self.mutation.is(Mutant::OneAppliedPosition) {
                let one = self.state.log.end.0.max(self.state.state_applied);
                (self.state.log.end, self.state.state_applied) = (Offset(one), one);
            }
            self.snapshots += 1;
            self.collecting = None;
            self.after_loss = false;
            self.deltas_lost = 0;
        }
        Ok(())
    }

    /// How many complete snapshots were seen.
    pub fn snapshots(&self) -> u64 {
        self.snapshots
    }

    /// The state; the log after `state.log.end` is still to be applied.
    pub fn finish(self) -> PartitionState<M> {
        self.state
    }
}
