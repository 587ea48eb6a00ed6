//! An hour with a real etcd: what the key layout of `bookie/metadata/README.md` takes in bytes, and how many transactions it gives.
//!
//! Not part of a plain `cargo bench`: `tests/bench/etcd/run` starts it. The product's own code makes every key, value and
//! transaction: real partitions and ledger clients over bookies in memory, and a metadata store that speaks to etcd through its JSON
//! gateway, which is slower than gRPC, so rates are lower bounds.
//!
//! Reading order: `measure` (the steps), `fill` (partitions and their ledgers), `store` and `http` (etcd as a metadata store),
//! `process` (etcd itself).

mod fill;
mod http;
mod limits;
mod measure;
mod process;
mod store;

pub(crate) use measure::measure;
