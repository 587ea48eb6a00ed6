//! `bookie-metadata`: the facts that all nodes agree on, as versioned keys with compare-and-set.
//!
//! [`MetadataStore`] is the seam (storage.md Z1); [`EmbeddedStore`] keeps them in one file for standalone,
//! [`EtcdStore`] in etcd for clusters, [`MemoryStore`] in memory for tests. Every implementation passes the conformance suite.
//!
//! # Invariants
//! 1. A transaction takes effect whole or not at all, and only if every compare holds at that moment.
//! 2. Reads are linearizable: a get or list that began after a commit was answered sees it.
//! 3. An [`MetadataError::OutcomeUnknown`] transaction may take effect later, even after a read that did not show it
//!    (storage.md, amendment to M3), but not after a later one of the same store that is bound to no version ([`MetadataStore::txn`]).
//! 4. A lease is lost only by this store's answer, never by its silence (ARCHITECTURE D6).
//!
//! Reading order: `store` (the contract), `basis` (what stores share), `memory`, `embedded`, `etcd`; then [`counter`] and [`cell`],
//! the two records of this crate, and [`Election`]; `conformance` and `testing` (feature `testing`).

mod basis;
pub mod cell;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod counter;
mod election;
mod embedded;
mod etcd;
mod memory;
#[cfg(test)]
mod model;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use basis::check::{KEY_BYTES_MAX, TXN_BYTES_MAX};
pub use basis::page::PAGE_ROWS_MAX;

pub use election::{Election, Seat};
pub use embedded::{EmbeddedOptions, EmbeddedStore, FORMAT_VERSION, OpenError};
pub use etcd::{EndpointVersion, EtcdOptions, EtcdStore};
pub use memory::MemoryStore;
pub use store::{
    BoxFuture, Compare, LeaseId, ListRequest, MetadataError, MetadataStore, Op, Page, Revision,
    TXN_OPS_MAX, Txn, TxnOutcome, VALUE_BYTES_MAX, Versioned, WatchEvent, WatchStream, list_all,
};
