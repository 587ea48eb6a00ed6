//! The shard as a machine: inputs in, effects out.
//!
//! A change is applied when it is proposed, and what rests on it is answered when it is durable. When an append fails, the machine
//! ends with all that waits, and the next one begins from what the chain holds: so no answer was ever given on ground that is gone.
//!
//! Reading order: `core` (one input), `live` (what is not durable), `timers`, `admin`.

mod admin;
mod core;
mod live;
mod timers;

pub use self::core::Coordinator;
pub(crate) use live::{ConsumerLive, Live, LiveKind};
