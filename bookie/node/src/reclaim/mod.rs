//! Space comes back (storage.md §6): what nobody can ask for any more is proved so, forgotten, and its bytes are freed.
//!
//! # Reading order
//! 1. `proof` — which ledgers metadata say are gone, by positive proof only (G1–G3), and which may leave limbo (S4).
//! 2. `plan` — which log files are unlinked or compacted next (G7, G12, D4); `scrub` — which is checked (E2).
//! 3. `compaction` — one copy under way (G8, G13); `worker` — plan, copy and check, one piece after the other (G14).
//!
//! What the core says of files and is told of them is in `core/reclaiming`; threads and timers are in `server`.
//!
//! # Invariants
//! 1. Nothing is forgotten because something was not found in a listing, or because nobody answered.
//! 2. Freeing never waits for space that it has to free: whole files first, and they cost one small record.

mod compaction;
mod pace;
mod plan;
mod proof;
mod scrub;
mod worker;

pub use pace::Pace;
pub use plan::{FileFacts, Stock, copy_bytes};
pub use proof::{Findings, Held, ProofError, Settled, examine};
pub use worker::{Ground, Work, Worker};
