//! `hulse topics copy`: records of one topic into another, with as many partitions as wanted.
//!
//! The source's partitions are read one after the other, each in order, in steps of a bounded number of offsets. A step is written down
//! (`plan`) in the topic `TARGET.copied` before its first record is sent, with the ends that the target's partitions have then. Which
//! partition a record goes to depends on the record alone, so a later run knows from the ends how many records of the step each
//! partition has already: it reads the step again, compares those with what is there, and goes on behind them (`resume`). Behind the last
//! step of a run it is written down that nothing is left of it: what was copied may then leave the source.
//!
//! # Invariants
//! 1. No record is copied twice. All runs send as the same producer. The first record to each partition is waited for alone: either
//!    it is stored, and whatever an earlier run left under way is refused by its sequence from then on; or its own sequence is taken,
//!    because such a batch came in first, and then the target is looked at again (`step::Sink::prove`).
//! 2. Each receipt has the offset that was foreseen; another one shows that somebody else wrote to the target, and ends the run.
//! 3. Records of one partition of the source that go to one partition of the target keep their order.

mod goal;
mod plan;
mod resume;
mod run;
mod step;

pub(crate) use run::{CopyView, run};
