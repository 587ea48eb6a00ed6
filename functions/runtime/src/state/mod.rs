//! State of a task: ordered tables of rows, and the overlay through which one epoch changes them (compute.md B1, B6).
//!
//! # Invariants
//! 1. [`State`] changes by [`State::fold`] alone, with a delta that is committed; live and replay both call it.
//! 2. A [`StateTxn`] reads its own writes, never changes the base, and leaves nothing when it is dropped.
//! 3. Both know what they weigh, and refuse to grow past their limit.
//!
//! Keys are ordered by their bytes; operators encode them so that expiry is a range from the start (window end first).

mod rows;
mod table;
mod txn;

pub use rows::{PlainRows, RowChange, RowCodec};
pub use table::{ROW_OVERHEAD, State, Table};
pub(crate) use txn::within;
pub use txn::{StateDelta, StateTxn, TableDelta};
