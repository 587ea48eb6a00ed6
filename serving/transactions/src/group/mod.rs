//! Offsets of STREAM groups inside transactions (serving.md C7): what a shard of groups stages, and what a marker makes of it.
//!
//! The shard's state holds [`OffsetStages`] beside its groups, and folds a [`StageChange`] wherever it folds changes of groups: what
//! [`OffsetStages::apply`] gives back is committed in the same step. [`StageDoor`] is the live side. That the committer is a member of its
//! group, at its present generation or epoch, the group says before: a zombie of a rebalanced consumer stages nothing (KIP-447).
//!
//! # Invariants
//! 1. `live == replay`: positions are counted by the fold itself.
//! 2. Of two commits of one partition, also a staged and a plain one, the one that was recorded later wins, whenever its transaction ends.
//! 3. Who is fenced stages nothing, and a marker that comes again changes nothing.
//! 4. Whatever is staged is settled by a marker, or goes with its group or topic; until then the offset is unstable.

mod door;
mod encode;
mod stages;
#[cfg(test)]
mod tests;

pub use door::StageDoor;
pub use stages::{Committed, OffsetStages, StageChange, StagedOffset, StagedProducer};
