//! The single-write log: write-ahead log and store at once (ARCHITECTURE D5).
//!
//! [`mod@format`] and [`group`] are pure functions over bytes; [`scan`] reads one file's groups; [`recovery`] reads footers and what has none at start and tells torn from damaged (storage.md 4.3); [`writer`] appends,
//! and begins and ends the work on whole files, which [`file_work`] carries out on any thread; [`compacted`] writes files of entries that were live in others.
//!
//! # What reclaim stands on
//! * Two kinds of files ([`FileKind`]) with one numbering: `.log`, and `.cmp`, which a [`compacted::CompactedWriter`] fills and
//!   [`writer::LogWriter::adopt`] gives a number and a name. A number that is missing and not said to be removed is damage.
//! * Each sealed file is announced to the core as [`SealedFile`]: its summary (bytes and entries per ledger) and the runs that take
//!   the place of what the index had of it; of several copies of an entry the one that came to the log last counts (`Provenance` of the index).
//! * [`Record::FilesRemoved`] is durable before a file is unlinked ([`files::FileTable::remove`], then the disk). Only a file of
//!   [`crate::core::NodeState::removable`] may go: older than the newest durable snapshot, and every older log file has a footer.
//!
//! # Invariants
//! 1. A block that was synced is never written again; each group begins on a new block.
//! 2. A recovered tail is never appended to: its end is made durable in a new file first.
//! 3. A group says what was durable before it, so a later valid group proves that a hole is damage and not a torn tail.
//! 4. A footer is written after its body is durable, and those of older files first; it is a hint that can be made again.

pub mod compacted;
pub mod driver;
pub mod file_work;
pub mod files;
mod footer_builder;
mod footer_file;
pub mod format;
pub mod group;
mod mend;
mod new_file;
pub mod recovery;
pub mod scan;
mod sealed_file;
mod sealer;
mod unlink;
pub mod writer;

pub use format::record::{DAMAGED_RUN_MAX, DamagedRange, DamagedRun, LimboKind, Record};
pub use format::{
    BLOCK_BYTES, DiskIdentity, FileKind, LedgerRow, LogPosition, file_name, footer, record,
};
pub use sealed_file::SealedFile;
pub use sealer::FileWorkEnd;
pub use unlink::unlink;
