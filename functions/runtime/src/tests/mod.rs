//! Tests: the canonical function (orders in, revenue per minute out) under crashes, zombies and lost answers, by seed; and each part
//! alone.

mod checker;
mod codec;
mod epochs;
mod income;
mod restoring;
mod simulation;
mod states;
mod times;
mod world;
