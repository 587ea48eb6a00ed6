//! The doors of a task: where records come from, the transaction that takes what it writes, and where snapshots lie. The SDK and the
//! object store stand behind them in production, the module `testing` in simulation.
//!
//! None of the futures is cancel-safe unless it says so: a call that was dropped has an unknown outcome, and the caller must go back
//! to [`Transactions::fence`].

use std::collections::BTreeMap;
use std::future::Future;

use bytes::Bytes;
use hulse_proto::time::TimestampMs;

use crate::id::InputPartition;
use crate::record::{Fetched, OutputRecord};
use crate::task::{Page, Producer, Trouble};

/// What a fetch brought, and what the time was then.
pub type Batch = (Vec<Fetched>, TimestampMs);

/// Where a task reads its records.
pub trait Source: Send {
    /// Reads committed records from these offsets on, waiting up to the epoch's interval for the first. At most `rows_max` records
    /// and `bytes_max` bytes, at least one record if there is one. A partition of which nothing new is known may be left out;
    /// [`Fetched::end`] is the last stable offset that the owner told, never a guess. Cancel-safe.
    ///
    /// # Errors
    /// [`Trouble::Unknown`]: nothing was read.
    fn fetch(
        &mut self,
        from: &BTreeMap<InputPartition, u64>,
        rows_max: usize,
        bytes_max: usize,
    ) -> impl Future<Output = Result<Batch, Trouble>> + Send;
}

/// One transactional id, its group and its changelog (ARCHITECTURE D10).
pub trait Transactions: Send {
    /// Takes the transactional id. When it returns, no transaction of a predecessor can commit any more, and each that did is visible
    /// to the reads that follow.
    ///
    /// # Errors
    /// [`Trouble`].
    fn fence(&mut self) -> impl Future<Output = Result<Producer, Trouble>> + Send;

    /// Committed offsets of the group; waits until none is pending. Partitions without one are left out.
    ///
    /// # Errors
    /// [`Trouble`].
    fn offsets(
        &mut self,
        partitions: &[InputPartition],
    ) -> impl Future<Output = Result<BTreeMap<InputPartition, u64>, Trouble>> + Send;

    /// Reads the changelog, read_committed, from `from` on; none: from its start.
    ///
    /// # Errors
    /// [`Trouble`].
    fn changelog(
        &mut self,
        from: Option<u64>,
    ) -> impl Future<Output = Result<Page, Trouble>> + Send;

    /// Begins a transaction.
    ///
    /// # Errors
    /// [`Trouble`].
    fn begin(&mut self) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Writes records in the transaction; on success they are durable, and visible once it commits.
    ///
    /// # Errors
    /// [`Trouble`].
    fn produce(
        &mut self,
        records: Vec<OutputRecord>,
    ) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Appends to the changelog in the transaction; returns the offset of the last record.
    ///
    /// # Errors
    /// [`Trouble`].
    fn append(&mut self, records: Vec<Bytes>) -> impl Future<Output = Result<u64, Trouble>> + Send;

    /// Commits offsets in the transaction, with the generation and the member id of the group: the second fence (B4.8).
    ///
    /// # Errors
    /// [`Trouble`].
    fn commit_offsets(
        &mut self,
        offsets: BTreeMap<InputPartition, u64>,
    ) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Ends the transaction. Success: all of it is committed.
    ///
    /// # Errors
    /// [`Trouble`].
    fn commit(&mut self) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Deletes the changelog's records below an offset. Idempotent.
    ///
    /// # Errors
    /// [`Trouble`]; may be left undone.
    fn truncate(&mut self, before: u64) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// Where snapshots lie.
pub trait SnapshotStore: Send {
    /// Writes an object, whole or not at all. A name is written once.
    ///
    /// # Errors
    /// [`Trouble::Unknown`].
    fn put(
        &mut self,
        path: &str,
        object: Bytes,
    ) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Reads an object; none if there is no such.
    ///
    /// # Errors
    /// [`Trouble::Unknown`].
    fn get(&mut self, path: &str) -> impl Future<Output = Result<Option<Bytes>, Trouble>> + Send;

    /// Deletes an object; one that is not there is no error.
    ///
    /// # Errors
    /// [`Trouble::Unknown`]; may be left undone.
    fn delete(&mut self, path: &str) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Names below a prefix, in any order.
    ///
    /// # Errors
    /// [`Trouble::Unknown`].
    fn list(&mut self, prefix: &str) -> impl Future<Output = Result<Vec<String>, Trouble>> + Send;
}
