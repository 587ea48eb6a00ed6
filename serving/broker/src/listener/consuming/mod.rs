//! Service Consume: sessions, and in them one lane per subscription and partition.
//!
//! `session` reads the client's stream, `attaching` opens a lane, `lane` delivers on it as the owner of the partition says
//! ([`crate::LaneView`]), `delivery` cuts what was read into units, `credit` and `ahead` bound what is under way, `answers` gives acks
//! and seeks their answers. `sharing` is the lane of a QUEUE or KEYED subscription, whose records a dispatcher of the owner gives out.
//!
//! # Invariants
//! 1. What a lane has sent, its tie knows before: an ack of it is never taken for one of something that was not sent.
//! 2. A unit is sent only with credit above 0 in records and bytes; credit lives and dies with the session (serving.md B9.1).
//! 3. Of one session at most [`ahead::SESSION_BYTES`] of batches are in memory before its connection takes them.
//! 4. A lane's last item is Detached (or Moved), whatever ended it.

mod ahead;
mod answers;
mod attaching;
mod credit;
mod delivery;
mod lane;
mod service;
mod session;
mod sharing;
mod telling;

pub(crate) use service::ConsumeService;
pub(in crate::listener) use sharing::told;
