//! The SDK against brokers in memory, with faults: F2 tests 18 and those that need several brokers (serving.md F2).

mod faults;
mod moves;
mod storm;
mod support;
mod typed;
