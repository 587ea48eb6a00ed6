//! How a ledger gets into object storage and out of it again (storage.md 7): state machines without I/O and without a clock.
//!
//! ```text
//! attempt   look ─► intent ─► upload ─► verify ─► look ─► commit
//! dropping  look ─► read back ─► mark ─► bookies drop ─► mark
//!                       └─ bad ─► withdraw: the ledger may be attempted anew
//! removal   (marked DELETING) look ─► tombstones ─► look at those who share ─► delete objects ─► remove the key
//! sweep     list ─► look ─► delete what nobody names
//! ```
//!
//! Each machine asks for one effect at a time and goes on with its answer; it may be dropped anywhere. What is left then is found by
//! metadata: an intent, a mark, a key that is still there.
//!
//! # Invariants
//! 1. Before the first byte of an object is sent, every ledger that shares it names its attempt (O2).
//! 2. A segment is committed only while all its ledgers still name the attempt, in one change of all (O6, O7).
//! 3. Bookies drop copies only after the segment was read back and the mark is committed (O8).
//! 4. An object is deleted only if no ledger that its name holds can be read from it: none that lives has it as its segment (O10, O12).
//! 5. An attempt that left metadata never returns, so whoever lists first and looks then needs no clock (O12).
//!
//! Reading order: `event`, `changes`, `attempt`, `dropping`, `removal`, `sweep`.

mod attempt;
mod changes;
mod dropping;
mod event;
mod mutant;
mod removal;
#[cfg(test)]
mod simulation;
mod sweep;

pub use attempt::{AttemptCore, AttemptTask};
pub use dropping::DropCore;
pub use event::{
    Change, Deletion, Found, Fresh, ObjectError, Step, TierEffect, TierEnd, TierEvent, TierFailure,
    TierLimits, UploadError, UploadOrder, Uploaded, Version,
};
pub use mutant::{TierMutant, TierMutation};
pub use removal::RemovalCore;
pub use sweep::{SweepCore, SweepReport, Swept};
