//! `serving-dispatch`: who gets which record of a partition, for QUEUE and KEYED subscriptions (serving.md B3, B4, B9). A state
//! machine: what happens goes in as calls with the owner's clock, what is to be done comes out as [`Effect`]s. No I/O, no async, no
//! clock, no payloads; chance from a seed.
//!
//! The shell calls what happened, then [`Dispatcher::pump`], then does what [`Dispatcher::take_effects`] says, and comes back at
//! [`Dispatcher::next_deadline`].
//!
//! # Invariants
//! 1. Every offset from the base up to the end of the window is processed, or in exactly one run of the window (`runs`).
//! 2. A record is held by one consumer at most; what is held of a slot is held by one consumer (K1).
//! 3. A receipt goes out after what it stands for is durable, and so does a record that comes again with a higher count.
//! 4. What a delta says is folded by [`QueueState::apply`] alone; what is live equals what is replayed.
//! 5. Nothing is dropped at a cap: new reads stop, and what is in the window is delivered again (B2.7).
//! 6. Every wait has an end that is an event or a deadline.
//!
//! # Cost
//! Every event costs O(log runs) per run it touches, and O(consumers) per delivery. A consumer that comes or goes costs O(slots)
//! and O(available runs). Memory: 24 bytes per run in the tree (16 and its key), whose fill makes it about 44; a window has at most
//! `window_max` records and one read more, and acked ranges are what is missing between its runs. KEYED adds 48 KiB of slots while
//! consumers are attached, and the strict orders 16 bytes per record that they have to remember.
//!
//! Reading order: [`range`], [`marks`], [`durable`] (what is kept); [`policy`], [`facts`], [`effect`] (what is chosen, said, and to
//! be done); `runs`, `holds`, `queues`, `buffer`, `session`, `slots` (what is live); `dispatcher` (all of it together), `window` (how a run goes
//! from place to place), `attaching`, `answers`, `reading`, `pass` (who gets what), `written`, `time`, `moves`, `pausing`, `redriving`, `letters`, `views`.

mod answers;
mod attaching;
mod buffer;
mod chance;
mod dispatcher;
pub mod durable;
pub mod effect;
pub mod facts;
mod holds;
mod letters;
pub mod marks;
mod moves;
mod pass;
mod pausing;
mod pending;
pub mod policy;
mod queues;
pub mod range;
mod reading;
mod redriving;
mod runs;
mod session;
mod slots;
#[cfg(test)]
mod tests;
mod time;
mod views;
mod window;
mod written;

pub use dispatcher::Dispatcher;
pub use durable::{Moved, QueueDelta, QueueState};
pub use effect::{Acquired, BlockedReason, Effect, Hashes, LetterWanted, ReadWanted, Status, Unit};
pub use facts::{
    Answer, AttachFault, Batch, Delay, KeyHash, Keys, Leave, NewSession, ReadDone, SLOTS,
    SessionId, Skip, Verdict, Written,
};
pub use marks::{Letter, Mark, Marks, Why};
pub use policy::{Backoff, DeadLetters, KeyOrder, Kind, Policy};
pub use range::{OffsetRange, OffsetRanges};
pub use views::{SessionStats, Stats, TRIES_TOLD};
