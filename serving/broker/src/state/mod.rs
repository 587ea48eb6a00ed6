//! What a partition must remember, as a fold of its two chains (ARCHITECTURE D3).
//!
//! [`PartitionState`] is the pair (L, M): [`LogState`] folds confirmed log entries only, a [`MetaState`] folds META deltas only,
//! and neither looks at the other: M is the [`Cursors`] of the partition's subscriptions. [`StateFold`] replays a state chain;
//! [`MetaRecord`] is what stands in its entries.
//!
//! # Invariants
//! 1. Live and replay use the same `apply`: after the same confirmed entries they are equal.
//! 2. A snapshot shows one point of confirmed state. Its chunks are contiguous; an incomplete one is ignored.
//! 3. A snapshot or delta of another topic identity is refused, never applied (serving.md C4.4).

mod cursors;
mod fold;
#[cfg(test)]
mod golden;
mod log_state;
mod meta;
mod producers;
mod record;
#[cfg(test)]
mod tests;

pub use cursors::{Change, Cursor, CursorDelta, Cursors, NewCursor, OffsetRange, OffsetRanges};
pub use fold::{PartitionState, StateError, StateFold};
pub use log_state::LogState;
pub use meta::MetaState;
pub use producers::{Known, Producers, Stored, Verdict};
pub(crate) use producers::{distance, missing_before};
pub(crate) use record::CHUNKS_MAX;
pub use record::{MetaRecord, MetaRecordKind, RecordError};
