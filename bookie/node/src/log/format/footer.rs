//! The footer of a sealed file (storage.md 4.4): what a start and a look-up need of it, without its body. Pure functions over bytes.
//!
//! It stands behind the last group, at a block boundary, or in a file of its own (`.idx`) when it had to be made again. Three parts:
//!
//! Slot pages, one block each; 255 slots of 16 bytes (offset of the record's frame, length of frame and content, header CRC, payload
//! CRC; u32 each), ordered by ledger, then entry, over all pages; then
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 4080 | 8 | salt of the file |
//! | 4088 | 4 | number of the page |
//! | 4092 | 4 | CRC32C of bytes 0..4092 |
//!
//! The directory: a copy of the file's header (one block), then
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 4096 | 8 | sequence of the first group |
//! | 4104 | 8 | sequence behind the last group |
//! | 4112 | 8 | logical end of the body |
//! | 4120 | 8 | end of the complete state snapshot at the head; 0: there is none |
//! | 4128 | 8 | entries |
//! | 4136 | 8 | bytes of their records |
//! | 4144 | 4 | slots |
//! | 4148 | 4 | ledgers |
//! | 4152 | 4 | runs |
//! | 4156 | 4 | damaged ranges |
//! | 4160 | 4 | bytes of state records |
//! | 4164 | 4 | state records |
//! | 4168 | 40 each | ledgers, ascending: ledger u64, bytes u64, confirmed end u64, entries u32, runs u32, flags u32 (1: holds adds of the writer), 0 u32 |
//! | … | 12 each | runs in the order of the ledgers: first entry u64, entries u32; their slots follow each other |
//! | … | 16 each | damaged ranges of the body: first u64, end u64 |
//! | … | … | state records (all that are no entries, snapshot rows excepted), framed as in a group |
//!
//! The trailer, the last 64 bytes of the file, behind zeros:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `HULSEFTR` |
//! | 8 | 4 | format version (1) |
//! | 12 | 4 | slot pages |
//! | 16 | 8 | file number |
//! | 24 | 8 | where the slot pages begin |
//! | 32 | 8 | length of the directory, which follows them |
//! | 40 | 4 | CRC32C of the directory |
//! | 44 | 16 | reserved (0) |
//! | 60 | 4 | CRC32C of bytes 0..60 |
//!
//! A footer is a hint: whatever is wrong with it, the body is read instead, and a new one made. So no error here says more than that.

use bytes::{Buf, BufMut};
use hulse_proto::entry::{EntryDigest, crc32c};
use hulse_proto::id::{EntryId, LedgerId};

use super::file_header::FileHeader;
use super::group_header::BLOCK_BYTES;
use super::record::{DamagedRange, Record, Records};

/// Slots of one page.
pub const PAGE_SLOTS: usize = 255;
/// Length of the trailer.
pub const TRAILER_BYTES: usize = 64;
/// Longest directory that is believed; some million runs.
pub const DIRECTORY_BYTES_MAX: u64 = 256 << 20;

const SLOT_BYTES: usize = 16;
const FIXED_BYTES: usize = BLOCK_BYTES + 72;
const LEDGER_BYTES: usize = 40;
const RUN_BYTES: usize = 12;
const DAMAGE_BYTES: usize = 16;
const MAGIC: u64 = u64::from_le_bytes(*b"HULSEFTR");
const VERSION: u32 = 1;
const HOLDS_NORMAL: u32 = 1;

/// Where an entry's record stands in the file, and what identifies its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FooterSlot {
    /// Of the frame, from the file's start.
    pub offset: u32,
    /// Of frame and content together.
    pub bytes: u32,
    /// Checksums of the content.
    pub digest: EntryDigest,
}

/// Consecutive entries of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FooterRun {
    /// The first.
    pub first: EntryId,
    /// How many; at least 1.
    pub entries: u32,
}

/// What a file holds of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FooterLedger {
    /// The ledger.
    pub ledger: LedgerId,
    /// Bytes of the entries' records.
    pub bytes: u64,
    /// Highest confirmed end that the writer's adds carried.
    pub confirmed_end: EntryId,
    /// Some entries are the writer's own.
    pub normal: bool,
    /// Sorted, not touching.
    pub runs: Vec<FooterRun>,
}

impl FooterLedger {
    /// Entries of all runs.
    pub fn entries(&self) -> u32 {
        self.runs.iter().map(|run| run.entries).sum()
    }
}

/// A footer without its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footer {
    /// Copy of the file's header.
    pub header: FileHeader,
    /// Number of the first group.
    pub first_sequence: u64,
    /// Number behind the last group.
    pub next_sequence: u64,
    /// Logical end of the body.
    pub end: u64,
    /// End of the complete state snapshot at the head; 0: there is none.
    pub snapshot_end: u64,
    /// By number.
    pub ledgers: Vec<FooterLedger>,
    /// Damage in the body.
    pub damage: Vec<DamagedRange>,
    /// Records that are no entries, but for the ledgers of a snapshot.
    pub state: Vec<Record>,
}

/// Where the parts of a footer stand, from the trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// Slot pages.
    pub pages: u32,
    /// The file.
    pub file: u64,
    /// Where the pages begin.
    pub pages_at: u64,
    /// Length of the directory behind them.
    pub directory_bytes: u64,
    directory_crc: u32,
}

impl Trailer {
    /// Decodes the trailer of a file of `file_bytes` bytes; `None`: there is none.
    pub fn decode(bytes: &[u8], file_bytes: u64) -> Option<Self> {
        let mut rest = bytes.get(..TRAILER_BYTES)?;
        let computed = crc32c(&rest[..TRAILER_BYTES - 4]);
        let magic = rest.get_u64_le() == MAGIC;
        let version = rest.get_u32_le();
        let trailer = Self {
            pages: rest.get_u32_le(),
            file: rest.get_u64_le(),
            pages_at: rest.get_u64_le(),
            directory_bytes: rest.get_u64_le(),
            directory_crc: rest.get_u32_le(),
        };
        rest.advance(16);
        let valid = magic && version == VERSION && rest.get_u32_le() == computed;
        let end = trailer
            .directory_at()?
            .checked_add(trailer.directory_bytes)?;
        let inside = end <= file_bytes && trailer.directory_bytes <= DIRECTORY_BYTES_MAX;
        (valid && inside).then_some(trailer)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TRAILER_BYTES);
        out.put_u64_le(MAGIC);
        out.put_u32_le(VERSION);
        out.put_u32_le(self.pages);
        out.put_u64_le(self.file);
        out.put_u64_le(self.pages_at);
        out.put_u64_le(self.directory_bytes);
        out.put_u32_le(self.directory_crc);
        out.put_bytes(0, 16);
        let crc = crc32c(&out);
        out.put_u32_le(crc);
        out
    }

    /// Where the directory begins.
    pub fn directory_at(&self) -> Option<u64> {
        self.pages_at
            .checked_add(u64::from(self.pages) * BLOCK_BYTES as u64)
    }
}

/// The pages of slots, for a file of this salt.
pub fn encode_pages(salt: u64, slots: &[FooterSlot]) -> Vec<u8> {
    let mut out = Vec::with_capacity(slots.len().div_ceil(PAGE_SLOTS) * BLOCK_BYTES);
    for (number, page) in slots.chunks(PAGE_SLOTS).enumerate() {
        encode_page(salt, number as u32, page, &mut out);
    }
    out
}

/// Directory, zeros and trailer, to be written behind the pages, which begin at `pages_at`.
pub fn encode_tail(footer: &Footer, pages_at: u64) -> Vec<u8> {
    let mut out = footer.encode_directory();
    let trailer = Trailer {
        pages: footer.entries().div_ceil(PAGE_SLOTS as u64) as u32,
        file: footer.header.file,
        pages_at,
        directory_bytes: out.len() as u64,
        directory_crc: crc32c(&out),
    };
    let end = (out.len() + TRAILER_BYTES).next_multiple_of(BLOCK_BYTES);
    out.resize(end - TRAILER_BYTES, 0);
    out.extend(trailer.encode());
    out
}

fn encode_page(salt: u64, page: u32, slots: &[FooterSlot], out: &mut Vec<u8>) {
    let from = out.len();
    for slot in slots {
        out.put_u32_le(slot.offset);
        out.put_u32_le(slot.bytes);
        out.put_u32_le(slot.digest.header_crc);
        out.put_u32_le(slot.digest.payload_crc);
    }
    out.resize(from + PAGE_SLOTS * SLOT_BYTES, 0);
    out.put_u64_le(salt);
    out.put_u32_le(page);
    let crc = crc32c(&out[from..]);
    out.put_u32_le(crc);
}

/// The slots of a page of the file with this salt, zeros behind the last one included; `None` when it is damaged or another one.
pub fn decode_page(bytes: &[u8], salt: u64, page: u32) -> Option<Vec<FooterSlot>> {
    let block = bytes.get(..BLOCK_BYTES)?;
    let (mut rest, mut tail) = block.split_at(PAGE_SLOTS * SLOT_BYTES);
    let computed = crc32c(&block[..BLOCK_BYTES - 4]);
    let right = tail.get_u64_le() == salt && tail.get_u32_le() == page;
    if !right || tail.get_u32_le() != computed {
        return None;
    }
    let mut slots = Vec::with_capacity(PAGE_SLOTS);
    while rest.has_remaining() {
        slots.push(FooterSlot {
            offset: rest.get_u32_le(),
            bytes: rest.get_u32_le(),
            digest: EntryDigest {
                header_crc: rest.get_u32_le(),
                payload_crc: rest.get_u32_le(),
            },
        });
    }
    Some(slots)
}

impl Footer {
    /// Entries of all ledgers.
    pub fn entries(&self) -> u64 {
        self.ledgers.iter().map(|l| u64::from(l.entries())).sum()
    }

    /// All but the ledgers.
    #[must_use]
    pub fn without_ledgers(self) -> Self {
        let ledgers = Vec::new();
        Self { ledgers, ..self }
    }

    fn encode_directory(&self) -> Vec<u8> {
        let mut state = Vec::new();
        self.state
            .iter()
            .for_each(|record| record.encode(&mut state));
        let runs: usize = self.ledgers.iter().map(|ledger| ledger.runs.len()).sum();
        let entries = self.entries();
        let mut out = self.header.encode();
        out.put_u64_le(self.first_sequence);
        out.put_u64_le(self.next_sequence);
        out.put_u64_le(self.end);
        out.put_u64_le(self.snapshot_end);
        out.put_u64_le(entries);
        out.put_u64_le(self.ledgers.iter().map(|ledger| ledger.bytes).sum());
        out.put_u32_le(entries as u32);
        out.put_u32_le(self.ledgers.len() as u32);
        out.put_u32_le(runs as u32);
        out.put_u32_le(self.damage.len() as u32);
        out.put_u32_le(state.len() as u32);
        out.put_u32_le(self.state.len() as u32);
        for ledger in &self.ledgers {
            out.put_u64_le(ledger.ledger.0);
            out.put_u64_le(ledger.bytes);
            out.put_u64_le(ledger.confirmed_end.0);
            out.put_u32_le(ledger.entries());
            out.put_u32_le(ledger.runs.len() as u32);
            out.put_u32_le(u32::from(ledger.normal) * HOLDS_NORMAL);
            out.put_u32_le(0);
        }
        for run in self.ledgers.iter().flat_map(|ledger| &ledger.runs) {
            out.put_u64_le(run.first.0);
            out.put_u32_le(run.entries);
        }
        for range in &self.damage {
            out.put_u64_le(range.first);
            out.put_u64_le(range.end);
        }
        out.extend(state);
        out
    }

    /// Decodes the directory that the trailer names.
    pub fn decode_directory(bytes: &[u8], trailer: &Trailer) -> Option<Self> {
        if bytes.len() as u64 != trailer.directory_bytes
            || bytes.len() < FIXED_BYTES
            || crc32c(bytes) != trailer.directory_crc
        {
            return None;
        }
        let header = FileHeader::decode(bytes).ok()?;
        let mut rest = &bytes[BLOCK_BYTES..];
        let (first_sequence, next_sequence) = (rest.get_u64_le(), rest.get_u64_le());
        let (end, snapshot_end) = (rest.get_u64_le(), rest.get_u64_le());
        let totals = (rest.get_u64_le(), rest.get_u64_le());
        let slots = rest.get_u32_le();
        let counts = Counts {
            ledgers: rest.get_u32_le() as usize,
            runs: rest.get_u32_le() as usize,
            damage: rest.get_u32_le() as usize,
            state_bytes: rest.get_u32_le() as usize,
            state: rest.get_u32_le() as usize,
        };
        if counts.bytes() != rest.len() as u64 || header.file != trailer.file {
            return None;
        }
        let ledgers = decode_ledgers(&mut rest, &counts)?;
        let damage = decode_damage(&mut rest, counts.damage, header.file);
        let state = decode_state(rest, counts.state)?;
        let entries: u64 = ledgers.iter().map(|l| u64::from(l.entries())).sum();
        let bytes: u64 = ledgers.iter().map(|ledger| ledger.bytes).sum();
        let pages = (slots as usize).div_ceil(PAGE_SLOTS);
        let fits = totals == (entries, bytes)
            && entries == u64::from(slots)
            && pages == trailer.pages as usize;
        fits.then_some(Self {
            header,
            first_sequence,
            next_sequence,
            end,
            snapshot_end,
            ledgers,
            damage,
            state,
        })
    }
}

struct Counts {
    ledgers: usize,
    runs: usize,
    damage: usize,
    state_bytes: usize,
    state: usize,
}

impl Counts {
    /// Checked against what is there before anything is allocated.
    fn bytes(&self) -> u64 {
        let rows = [
            (self.ledgers, LEDGER_BYTES),
            (self.runs, RUN_BYTES),
            (self.damage, DAMAGE_BYTES),
            (self.state_bytes, 1),
        ];
        rows.iter()
            .map(|(count, bytes)| *count as u64 * *bytes as u64)
            .sum()
    }
}

fn decode_ledgers(rest: &mut &[u8], counts: &Counts) -> Option<Vec<FooterLedger>> {
    let (mut rows, after) = rest.split_at(counts.ledgers * LEDGER_BYTES);
    let (mut runs, after) = after.split_at(counts.runs * RUN_BYTES);
    *rest = after;
    let mut ledgers: Vec<FooterLedger> = Vec::with_capacity(counts.ledgers);
    while rows.has_remaining() {
        let ledger = LedgerId(rows.get_u64_le());
        let bytes = rows.get_u64_le();
        let confirmed_end = EntryId(rows.get_u64_le());
        let (entries, count) = (rows.get_u32_le(), rows.get_u32_le() as usize);
        let flags = rows.get_u32_le();
        let reserved = rows.get_u32_le();
        let ascends = ledgers.last().is_none_or(|last| last.ledger < ledger);
        if !ascends || flags > HOLDS_NORMAL || reserved != 0 || count * RUN_BYTES > runs.len() {
            return None;
        }
        let found = FooterLedger {
            ledger,
            bytes,
            confirmed_end,
            normal: flags == HOLDS_NORMAL,
            runs: decode_runs(&mut runs, count, entries)?,
        };
        ledgers.push(found);
    }
    runs.is_empty().then_some(ledgers)
}

/// Sorted and not touching, with so many entries together.
fn decode_runs(rows: &mut &[u8], count: usize, entries: u32) -> Option<Vec<FooterRun>> {
    let mut runs = Vec::with_capacity(count);
    let (mut free, mut total) = (0, 0_u32);
    for _ in 0..count {
        let run = FooterRun {
            first: EntryId(rows.get_u64_le()),
            entries: rows.get_u32_le(),
        };
        if run.entries == 0 || run.first.0 < free {
            return None;
        }
        // Not touching: the next one begins behind a gap.
        free = run
            .first
            .0
            .checked_add(u64::from(run.entries))?
            .checked_add(1)?;
        total = total.checked_add(run.entries)?;
        runs.push(run);
    }
    (total == entries).then_some(runs)
}

fn decode_damage(rest: &mut &[u8], count: usize, file: u64) -> Vec<DamagedRange> {
    let range = |_| DamagedRange {
        file,
        first: rest.get_u64_le(),
        end: rest.get_u64_le(),
    };
    (0..count).map(range).collect()
}

fn decode_state(area: &[u8], count: usize) -> Option<Vec<Record>> {
    let mut state = Vec::new();
    for placed in Records::new(area) {
        match placed.ok()?.record {
            Record::Entry(_) => return None,
            record => state.push(record),
        }
    }
    (state.len() == count).then_some(state)
}
