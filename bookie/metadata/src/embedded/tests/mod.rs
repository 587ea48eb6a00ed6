//! Tests of the embedded store.

mod crash;
mod disk;
mod faults;
mod open;
mod suite;
mod workload;
