//! The node without threads, disk or clock: requests and group results in, answers and wishes out.
//!
//! [`NodeState`] is what the log says; [`NodeCore`] adds what is under way. The shell calls [`NodeCore::on_event`] and
//! [`NodeCore::take_group`], writes and syncs the group, reports it, and delivers the answers. `step` (feature `testing`) does
//! the same in one thread.
//!
//! # Invariants
//! 1. Check and append are one step: an event is judged and its record placed in the log's order at once (storage.md B4).
//! 2. Groups become durable in order, so a durable fence proves that every earlier add is durable or failed (B5, B10).
//! 3. After the log failed nothing is confirmed any more (B14).

mod checks;
mod damage;
mod deletion;
mod event;
mod fences;
mod first_contact;
mod groups;
mod inventory;
mod level;
mod node_core;
mod outcomes;
mod reads;
mod rebuild;
mod reclaiming;
mod state;

pub use damage::{DamagedEntries, KnownDamage};
pub use event::{Answer, Effect, Event, Limits, Room, Ticket, Verdict, Withdrawn};
pub use groups::SealedGroup;
pub use level::{Level, LevelLimits};
pub use node_core::NodeCore;
pub use reads::{Part, READ_BYTES_MAX, READ_ENTRIES_MAX};
pub use rebuild::Rebuild;
pub use state::NodeState;
