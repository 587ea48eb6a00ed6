//! The store in one redb file: for standalone and for a single machine.
//!
//! Path of a transaction: [`EmbeddedStore`] (check, bounded queue) -> `group` (one writer at a time takes what waits and
//! commits it as one redb transaction) -> `engine` (the file, its repair) -> publish (snapshot, history, leases) -> answers.
//! Reads go to the published snapshot and wait for nobody.
//!
//! # Invariants
//! 1. A transaction is answered only after its redb commit is durable and published (`Durability::Immediate`, storage.md Z3).
//! 2. Snapshot, history and leases are published together: a reader never sees one ahead of another.
//! 3. After an I/O error the file is opened anew in this process, its bytes are synced (after a failed sync:
//!    written again, then synced), and its revision says what became of the caught group. If that fails, the process ends.
//! 4. Leases of earlier boots end when the file is opened; lease numbers carry the boot, so none is given twice.
//!
//! Files: `PATH` (redb), `PATH.lock` (who holds it), `PATH.reserve` (room for a repair on a full disk), `PATH.new` (a file
//! whose making was cut short; overwritten by the next open).

mod backend;
mod engine;
mod error;
mod files;
mod group;
mod rows;
mod store;
#[cfg(test)]
mod tests;

pub use engine::FORMAT_VERSION;
pub use error::OpenError;
pub use store::{EmbeddedOptions, EmbeddedStore};
