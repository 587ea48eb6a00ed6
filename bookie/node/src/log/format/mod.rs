//! The log's formats, version 1 from here on: pure functions over bytes. Whatever a disk gives back is as untrusted as a wire:
//! lengths are checked before anything is allocated, checksums before anything is believed, and nothing panics.
//!
//! A file is a header ([`FileHeader`]), groups ([`GroupHeader`]) of records ([`record`]), and, once it is sealed, a [`mod@footer`].
//! Little-endian throughout. A reader refuses features and record types that it must know and does not, and skips those it may.

mod file_header;
pub mod footer;
mod group_header;
mod ledger_row;
mod names;
pub mod record;

pub use file_header::{FORMAT_VERSION, FileHeader, FileHeaderError, FileKind, REPLACES_MAX};
pub use group_header::{
    BLOCK_BYTES, DiskIdentity, GROUP_BODY_BYTES_MAX, GROUP_HEADER_BYTES, GroupError, GroupHeader,
    LogPosition, padded,
};
pub use ledger_row::LedgerRow;
pub use names::{file_name, file_number, kind_and_number, name_of, side_name, side_number};
