//! `functions-runtime`: functions over topics, exactly once (compute.md B1–B11; ARCHITECTURE D10). A function reads records,
//! computes, and writes, in micro-batches. What an epoch writes (outputs, dead letters, late records, the change of its state, its
//! watermarks and the offsets that it consumed) is one transaction of the log, so there is no second phase to recover.
//!
//! Main path: [`task::Task`] asks for records → [`epoch::compute`] runs the [`EpochOperator`] over a [`state::StateTxn`] → the task
//! asks for one transaction → its commit folds the overlay into the state. [`shell::Shell`] does what the task asks for, through the
//! traits of [`seam`].
//!
//! # Invariants
//! 1. State after epoch k is a function of the records below the offsets of epoch k, cut into the same epochs. An epoch is committed
//!    whole or has left nothing (D10).
//! 2. A task fences its predecessors before it reads anything of what they wrote (B5; reading first would miss a commit in between).
//! 3. No outcome is guessed: an error, or no answer, drops the overlay and the base, and the task restores (B4.10).
//! 4. No code of a user runs while a transaction is open.
//! 5. The watermark never goes back, also over a restart; lateness is judged by the committed one, firing by the new one (B7).
//! 6. Nothing local is believed after a restart: state is a checked snapshot and the changelog behind it.
//! 7. Everything that grows has a limit in [`Limits`], whose breach is an error that names it (B11).
//!
//! The core is a state machine without I/O and without a clock. Times are milliseconds since 1970; what an epoch calls "now" is
//! passed in once and the same for all of it.
//!
//! Not here: who runs which task (control), SQL (`functions-sql`), the wire (the SDK stands behind [`seam`]).
//!
//! Reading order: [`record`], [`state`], [`watermark`], [`operator`], [`epoch`], [`codec`], `restore`, [`task`], [`seam`], [`shell`].

pub mod codec;
pub mod epoch;
pub mod failure;
pub mod id;
pub mod letters;
mod limits;
pub mod mutant;
pub mod operator;
pub mod record;
mod restore;
pub mod seam;
pub mod shell;
pub mod state;
pub mod task;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod watermark;

pub use failure::{OperatorError, TaskFailure};
pub use id::{Fingerprint, InputPartition, TaskId};
pub use limits::Limits;
pub use operator::{Emitter, EpochInput, EpochOperator};
