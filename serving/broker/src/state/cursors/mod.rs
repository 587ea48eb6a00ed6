//! M of a partition: the cursors of its subscriptions (serving.md B1, B2; ARCHITECTURE D8).
//!
//! # Invariants
//! 1. A cursor is what was acknowledged, never what was read (case LD-01).
//! 2. Deltas name the subscription's uuid: one that was made again under the same name inherits nothing.
//! 3. The ranges above a base are disjoint, apart from one another, and above it; they may begin and end inside a batch (SU-07).
//!
//! Reading order: `serving_dispatch::OffsetRanges` (a set of offsets), `cursor` (one of them), `change` (what a delta says), `table` (all of them).

mod change;
mod cursor;
mod table;
#[cfg(test)]
mod tests;

pub use change::{Change, CursorDelta};
pub use cursor::{Cursor, NewCursor};
pub use serving_dispatch::{OffsetRange, OffsetRanges};
pub use table::Cursors;
