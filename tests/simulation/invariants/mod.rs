//! Tests 1–3, 5–13 and 25 of storage.md §12: directed histories, broken at each of their steps in turn.
//!
//! | number | says in short | tests |
//! |---|---|---|
//! | 1 | acked prefix | `acked_prefix` |
//! | 2 | confirmations | `confirmations` |
//! | 3 | fence promise | `fence_promise`; `bookie/node/src/tests/fences.rs`, `crash_points.rs` |
//! | 5 | replay commutes | `bookie/node/src/tests/replay.rs` |
//! | 6 | recoverers that meet | `recoverers` |
//! | 7 | members that hang | `hanging` |
//! | 8 | old owner | `old_owner`, `take_over` |
//! | 9 | ensemble change | `changes` |
//! | 10 | unknown outcomes | `unknown_outcomes` |
//! | 11 | torn tail | `bookie/node/src/tests/torn_tail.rs` |
//! | 12 | damage | `acked_prefix`; `bookie/node/src/tests/corruption.rs` |
//! | 13 | failed sync | `failed_sync`; `bookie/node/src/tests/fences.rs` |
//! | 25 | offsets | `take_over` |
//!
//! `scene` is what they share, `partition` the same for whole partitions.

mod acked_prefix;
mod changes;
mod confirmations;
mod failed_sync;
mod fence_promise;
mod hanging;
mod old_owner;
mod partition;
mod recoverers;
mod scene;
mod take_over;
mod unknown_outcomes;
