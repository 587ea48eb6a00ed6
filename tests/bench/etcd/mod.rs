//! An hour with a real etcd: what the key layout of `bookie/metadata/README.md` takes in bytes, and how many transactions it gives.
//!
//! Not part of a plain `cargo bench`: `tests/bench/etcd/run` starts it. The product's own code makes every key, value and
//! transaction: real partitions and ledger clients over bookies in memory, and the product's store over gRPC.
//!
//! Reading order: `measure` (the steps), `fill` (partitions and their ledgers), `counted` (the store, and how often it was asked),
//! `process` and `ask` (etcd itself), `limits` (what it refuses), `million` (a million ledgers, only when named).

mod ask;
mod counted;
mod fill;
mod limits;
mod measure;
mod million;
mod process;

pub(crate) use measure::measure;
pub(crate) use million::measure as million;
pub(crate) use process::{Etcd, PREFIX, QUOTA_BYTES, store_at};
