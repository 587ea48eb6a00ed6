//! `hulse-proto`: what two Hulse processes must agree on. No I/O, no runtime, no clock.
//!
//! Reading order: [`id`] (names of things), [`batch`] (what a producer sends and a segment stores), [`entry`] (what a ledger
//! stores), [`bookie`] (what a storage node can be asked), [`ledger`] (what metadata says of a ledger), [`tier`] (where in object storage it is), [`error`] (every reason
//! for a refusal), [`wire`] (generated gRPC types), [`mutant`] (rules that tests switch off), [`size`] (how many bytes, for people).
//!
//! # Invariants
//! 1. Bytes that came from a wire or a disk are untrusted: lengths are checked before allocation, checksums before belief.
//! 2. A record batch is never decoded on the plain produce or consume path (ARCHITECTURE D1).
//! 3. Half-open ranges everywhere; an `end` is exclusive, so no sentinel such as -1 exists.

pub mod batch;
pub mod bookie;
pub mod entry;
pub mod error;
#[cfg(test)]
mod golden;
pub mod id;
pub mod ledger;
mod ledger_parts;
pub mod limits;
pub mod mutant;
pub mod size;
pub mod tier;
pub mod time;
pub mod wire;
