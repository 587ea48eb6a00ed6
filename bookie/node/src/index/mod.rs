//! Where each entry lies: per ledger, runs of consecutive entries (storage.md 4.4).
//!
//! Of files that are not sealed every entry's place is in memory ([`Runs`]). Of sealed ones only the runs are ([`ColdRun`]), and a
//! [`LedgerShare`] per file and ledger, which says how much of what they hold; both `packed` into some bytes each. Places and digests
//! come from the slot pages of the footers, through the bounded `slot_cache`.
//!
//! # How a page gets to whom it concerns
//! The core knows which entries are held and never needs where or with which bytes: it hands out [`Wanted`], and the shell resolves
//! it ([`Locator`]) on the thread that reads anyway. A duplicate of an entry in a sealed file (storage.md B7) is compared there too.
//! So the core stays without I/O and without waiting, and no page is read under its lock. The core's own word, that an entry is
//! held, is never taken back by a page that cannot be read: that is damage, and UNKNOWN to whoever asked (E2).

mod entries;
mod lists;
mod locator;
mod packed;
mod runs;
mod slot_cache;
mod summary;
mod wanted;

pub use entries::{ColdRun, Entries};
pub use locator::{Locator, ReadFault};
pub use runs::{Location, Runs, Slot};
pub use summary::{FileSummary, IdRanges, LedgerShare, Provenance};
pub use wanted::{Located, Part, Wanted};
