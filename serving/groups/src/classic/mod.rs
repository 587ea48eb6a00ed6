//! The classic protocol (serving.md B6): join, sync, heartbeat, leave, static members; eager and cooperative alike, as the bytes of
//! members are opaque.
//!
//! Durable is a generation when its leader has assigned; what leads there is not, so that a coordinator that moves goes on with the
//! last complete generation, and members in between join again.
//!
//! Reading order: `live` (what is known), `step` (one request), `join`, `statics`, `rebalance`, `sync`, `leave`.

mod join;
mod leave;
mod live;
mod rebalance;
mod statics;
mod step;
mod sync;
#[cfg(test)]
mod tests;

pub(crate) use live::ClassicLive;
