//! Reads the log at start and decides where it ends (storage.md 4.3): footers of what is sealed, groups of what is not.
//!
//! At the first hole, a later valid group that states a durable end beyond it proves damage, and so does any later footer: the hole
//! is reported and passed over. Without such proof the hole is a torn tail: the log ends there, and what lies behind it (in any later
//! log file too) is void, because any subset of unsynced bytes may have survived. A file whose number is skipped, that no later file
//! declares void and no record removed, was taken away: damage, since each file is durable in the directory before the next one is
//! made. Nothing is changed on the disk here; the writer makes the decision durable in a new file before it removes anything.
//!
//! A hole that tells all the same what it held is none: one in which only payload rotted, or a single bit flipped ([`RottenEntry`]).
//!
//! The bodies of sealed files are not read: damage in them shows when they are read or scrubbed (E2), and the index does not forget
//! what they hold. Compacted files stand outside the order of groups; each is complete by itself.

mod error;
mod head;
mod open;
mod pass;
mod recovered;
mod rotten;
mod slots;

pub use error::LogError;
pub use head::read_head;
pub use recovered::{Recovered, Replay, SealedOnDisk, Unsealed, recover};
pub use rotten::RottenEntry;
pub use slots::slots_again;
