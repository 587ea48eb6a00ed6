//! The staging store (serving.md C9, B9.5): half messages and scheduled messages, on one store with one index and one publisher.
//!
//! A store is a partition of an internal topic: payloads stand in its log, and what is known of them in its state. Whoever reads a target
//! sees nothing of them before they are published, and no target's last stable offset waits for them.
//!
//! Main path: payload appended → [`Request::Prepare`] or [`Request::Schedule`] → durable → answer; then a decision, or time → durable →
//! [`Effect::Publish`] → durable at the target → done.
//!
//! # Invariants
//! 1. [`StagingState::apply`] is the only way that what is durable changes: `live == replay`.
//! 2. The first decision wins, and is told to whoever decides again.
//! 3. An item is published once: its sequence at the target is durable before it is sent, and no more are on their way to a target than
//!    the target's window of duplicates holds (C2.4). So a crash between sending and hearing gives neither loss nor a second copy.
//! 4. Nothing is published before its time, by the owner's clock, which never falls (ARCHITECTURE D2).
//! 5. A check counts when it was sent. While no session of a group is there, its items wait, and delay nobody else's.
//! 6. What is to be read again is held in the log; an item that has grown old is appended anew, so that ledgers can go.
//!
//! Reading order: `item`, `change`, `state`, `encode`; `request`, `due`, `core`, `decide`, `checks`, `publish`, `room`.

mod change;
mod checks;
mod core;
mod decide;
mod due;
mod encode;
mod item;
mod publish;
mod request;
mod room;
mod state;
#[cfg(test)]
mod tests;

pub use change::{Change, Delta};
pub use core::{Staging, StagingConfig};
pub use item::{Decision, Item, ItemId, Kind, Status};
pub use request::{Answer, Effect, Input, PublishOutcome, Request, RequestId};
pub use state::StagingState;
