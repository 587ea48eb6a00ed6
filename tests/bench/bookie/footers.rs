//! Sealed log files as they would be after 10^8 entries: true headers, slot pages, directories and trailers, and a hole for a body.
//!
//! Each ledger has one run in each file, which is the most that partitions that all write at once cause.

use std::path::Path;
use std::sync::Arc;

use bookie_node::log::file_name;
use bookie_node::log::footer::{
    Footer, FooterLedger, FooterRun, FooterSlot, encode_pages, encode_tail,
};
use bookie_node::log::format::FileHeader;
use bookie_node::log::{BLOCK_BYTES, DiskIdentity, FileKind};
use bookie_node::{Disk, OsDisk};
use hulse_proto::entry::EntryDigest;
use hulse_proto::id::{EntryId, LedgerId};

/// Entries of all ledgers, at least.
pub(super) const ENTRIES: u64 = 100_000_000;
/// Entries of one file: so many of 4 KiB fill 256 MiB.
const FILE_ENTRIES: u64 = 62_000;
/// What a record of an entry takes in the body, bytes.
const RECORD_BYTES: u64 = 4_230;
/// The first ledger, far from those that the server makes itself.
pub(super) const FIRST_LEDGER: u64 = 1 << 40;

/// How many ledgers write at once.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub ledgers: u64,
}

impl Shape {
    /// Entries of a ledger in one file.
    pub fn run(self) -> u64 {
        FILE_ENTRIES / self.ledgers
    }

    pub fn files(self) -> u64 {
        ENTRIES.div_ceil(self.run() * self.ledgers)
    }

    pub fn runs(self) -> u64 {
        self.files() * self.ledgers
    }

    /// Entries of one ledger.
    pub fn length(self) -> u64 {
        self.run() * self.files()
    }
}

/// Whose files those in this folder are.
pub(super) fn identity_of(folder: &Path) -> anyhow::Result<DiskIdentity> {
    let disk = OsDisk::open(folder)?;
    let first = disk.open(&file_name(0))?.read_at(0, BLOCK_BYTES)?;
    Ok(FileHeader::decode(&first)?.identity)
}

/// Writes all files, in the place of those that are there. The bytes that they take.
pub(super) fn write(folder: &Path, identity: DiskIdentity, shape: Shape) -> anyhow::Result<u64> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::open(folder)?);
    for name in disk.list()?.iter().filter(|name| name.ends_with(".log")) {
        disk.remove(name)?;
    }
    let mut bytes = 0;
    for number in 0..shape.files() {
        let file = disk.create(&file_name(number), 0)?;
        let footer = footer(identity, number, shape);
        let pages = encode_pages(number, &slots(shape));
        let tail = encode_tail(&footer, footer.end);
        file.write_at(0, &footer.header.encode())?;
        file.write_at(footer.end, &pages)?;
        file.write_at(footer.end + pages.len() as u64, &tail)?;
        bytes += (BLOCK_BYTES + pages.len() + tail.len()) as u64;
    }
    disk.sync_dir()?;
    Ok(bytes)
}

fn slots(shape: Shape) -> Vec<FooterSlot> {
    let slot = |number: u64| FooterSlot {
        offset: (BLOCK_BYTES as u64 + number * RECORD_BYTES) as u32,
        bytes: RECORD_BYTES as u32,
        digest: EntryDigest {
            header_crc: number as u32,
            payload_crc: 1,
        },
    };
    (0..shape.run() * shape.ledgers).map(slot).collect()
}

fn footer(identity: DiskIdentity, file: u64, shape: Shape) -> Footer {
    let run = FooterRun {
        first: EntryId(file * shape.run()),
        entries: shape.run() as u32,
    };
    let ledgers = (0..shape.ledgers).map(|ledger| FooterLedger {
        ledger: LedgerId(FIRST_LEDGER + ledger),
        bytes: shape.run() * RECORD_BYTES,
        confirmed_end: run.first,
        normal: true,
        runs: vec![run],
    });
    let body = (shape.run() * shape.ledgers * RECORD_BYTES).next_multiple_of(BLOCK_BYTES as u64);
    Footer {
        header: FileHeader {
            kind: FileKind::Log,
            identity,
            file,
            salt: file,
            created_at: 0,
            file_bytes: 256 << 20,
            replaces: Vec::new(),
            counts_as: None,
        },
        first_sequence: file,
        next_sequence: file + 1,
        end: BLOCK_BYTES as u64 + body,
        snapshot_end: 0,
        ledgers: ledgers.collect(),
        damage: Vec::new(),
        state: Vec::new(),
    }
}
