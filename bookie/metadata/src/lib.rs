//! `bookie-metadata`: the facts that all nodes agree on, as versioned keys with compare-and-set.
//!
//! [`MetadataStore`] is the seam (storage.md Z1); the embedded store keeps them in one file for standalone,
//! [`memory`] in memory for tests. Every implementation passes the conformance suite.
//!
//! # Invariants
//! 1. A transaction takes effect whole or not at all, and only if every compare holds at that moment.
//! 2. Reads are linearizable: a get or list that began after a commit was answered sees it.
//! 3. An [`MetadataError::OutcomeUnknown`] transaction may take effect later, even after a read that did not show it
//!    (storage.md, amendment to M3).
//! 4. A lease is lost only by this store's answer, never by its silence (ARCHITECTURE D6).

mod store;

pub use store::{
    BoxFuture, Compare, LeaseId, ListRequest, MetadataError, MetadataStore, Op, Page, Revision,
    TXN_OPS_MAX, Txn, TxnOutcome, VALUE_BYTES_MAX, Versioned, WatchEvent, WatchStream, list_all,
};
