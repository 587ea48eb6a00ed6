//! Makes a segment out of entries: blocks as they fill, an index behind each ledger, directory and trailer. No I/O.
//!
//! # Invariants
//! 1. A segment is finished only of whole ledgers: every entry in order, with the offsets, bytes and digest that the ledger was closed
//!    with, recomputed from the bytes that go into the object (storage.md O3, O5).
//! 2. No more than one block is held back; payloads are never copied.

use bytes::Bytes;
use hulse_proto::entry::{Crc32c, Entry, EntryError, Envelope, EnvelopeError, Totals};
use hulse_proto::id::{EntryId, LedgerId, Offset, SegmentId};
use hulse_proto::ledger::LedgerMetadata;
use hulse_proto::tier::AbortedRange;
use hulse_proto::time::TimestampMs;

use crate::format::{
    BLOCK_HEADER_BYTES, BlockHeader, BlockRow, DIRECTORY_LEDGERS_MAX, Directory, DirectoryRow,
    FormatError, Index, IndexHead, TRAILER_BYTES, Trailer, encode_block_header, seal_of,
};

/// Blocks are closed before they grow past this; a longer entry has a block of its own.
pub const BLOCK_BYTES_DEFAULT: usize = 1 << 20;

/// Why no segment can be made of what was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Not the entry that comes next: one is missing.
    #[error("ledger {ledger}: entry {expected} is missing")]
    NotNext {
        /// Which.
        ledger: LedgerId,
        /// The entry that should have come.
        expected: EntryId,
    },
    /// Its offsets do not follow those before it.
    #[error("ledger {ledger}: entry {entry} begins at offset {found}, expected {expected}")]
    Offsets {
        /// Which.
        ledger: LedgerId,
        /// Of which entry.
        entry: EntryId,
        /// Where it begins.
        found: Offset,
        /// Where it should.
        expected: Offset,
    },
    /// The bytes give other totals than the ledger was closed with, or than the entry says.
    #[error("ledger {ledger}: its entries give other totals than it was closed with")]
    Totals {
        /// Which.
        ledger: LedgerId,
    },
    /// The entry's payload does not match its header.
    #[error("ledger {ledger}: {error}")]
    Entry {
        /// Which.
        ledger: LedgerId,
        /// How.
        error: EntryError,
    },
    /// The entry's envelope is none.
    #[error("ledger {ledger}: {error}")]
    Envelope {
        /// Which.
        ledger: LedgerId,
        /// How.
        error: EnvelopeError,
    },
    /// It cannot be tiered as it stands.
    #[error("ledger {ledger} cannot be tiered: {why}")]
    Unfit {
        /// Which.
        ledger: LedgerId,
        /// Why.
        why: &'static str,
    },
    /// The parts would not be read back.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// A ledger as metadata have it: what its entries must add up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerPlan {
    /// What the index says of the whole ledger.
    pub head: IndexHead,
    /// In order of their first offsets.
    pub aborted: Vec<AbortedRange>,
}

impl LedgerPlan {
    /// Of a closed ledger. Ranges that stand in a ledger of their own come by `aborted`.
    ///
    /// # Errors
    /// [`SegmentError::Unfit`].
    pub fn new(
        ledger: LedgerId,
        metadata: &LedgerMetadata,
        aborted: Option<Vec<AbortedRange>>,
    ) -> Result<Self, SegmentError> {
        let unfit = |why| SegmentError::Unfit { ledger, why };
        let totals = metadata.closed.ok_or_else(|| unfit("it is not closed"))?;
        if totals.end == EntryId(0) {
            return Err(unfit("it has no entries"));
        }
        let settled = metadata
            .tier
            .as_ref()
            .and_then(|tier| tier.settled.as_ref());
        let settled = settled.ok_or_else(|| unfit("its owner has not settled it"))?;
        let mut aborted = match (settled.aborted_ledger, aborted) {
            (Some(_), None) => return Err(unfit("its aborted ranges were not read")),
            (_, Some(ranges)) => ranges,
            (None, None) => settled.aborted.clone(),
        };
        aborted.sort_unstable();
        let head = IndexHead {
            ledger,
            partition: metadata.partition,
            base_offset: metadata.base_offset,
            totals,
        };
        Ok(Self { head, aborted })
    }
}

/// A finished segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Which.
    pub segment: SegmentId,
    /// All its bytes.
    pub object_bytes: u64,
    /// Where each ledger is.
    pub directory: Directory,
}

/// The block that is being filled.
struct OpenBlock {
    first: EntryId,
    first_offset: Offset,
    entries: u32,
    bytes: usize,
    crc: Crc32c,
    parts: Vec<Bytes>,
    min_timestamp: TimestampMs,
    max_timestamp: TimestampMs,
}

/// The ledger that is being written.
struct OpenLedger {
    plan: LedgerPlan,
    first_byte: u64,
    next: EntryId,
    next_offset: u64,
    records: u64,
    totals: Totals,
    running_max: TimestampMs,
    block: Option<OpenBlock>,
    rows: Vec<BlockRow>,
}

/// Makes one segment. What it gives out is the object, in order, in pieces of any length.
pub struct SegmentWriter {
    segment: SegmentId,
    block_bytes: usize,
    at: u64,
    rows: Vec<DirectoryRow>,
    ledger: Option<OpenLedger>,
}

impl SegmentWriter {
    /// One without anything. `block_bytes`: where blocks are closed.
    pub fn new(segment: SegmentId, block_bytes: usize) -> Self {
        Self {
            segment,
            block_bytes,
            at: 0,
            rows: Vec::new(),
            ledger: None,
        }
    }

    /// Begins the next ledger, which must have a higher number than the one before.
    ///
    /// # Errors
    /// [`SegmentError::Unfit`] when the ledger before is not ended, or this one does not fit.
    pub fn begin(&mut self, plan: LedgerPlan) -> Result<(), SegmentError> {
        let ledger = plan.head.ledger;
        let unfit = |why| Err(SegmentError::Unfit { ledger, why });
        if self.ledger.is_some() {
            return unfit("the one before it is not ended");
        }
        if self.rows.len() >= DIRECTORY_LEDGERS_MAX {
            return unfit("the segment is full");
        }
        self.ledger = Some(OpenLedger {
            first_byte: self.at,
            next: EntryId(0),
            next_offset: plan.head.base_offset.0,
            records: 0,
            totals: Totals::default(),
            running_max: TimestampMs::MIN,
            block: None,
            rows: Vec::new(),
            plan,
        });
        Ok(())
    }

    /// Takes the next entry of the ledger; finished blocks are pushed.
    ///
    /// # Errors
    /// [`SegmentError`]: the segment is void.
    pub fn push(&mut self, entry: &Entry, out: &mut Vec<Bytes>) -> Result<(), SegmentError> {
        let ledger = self.ledger.as_mut().ok_or(SegmentError::Unfit {
            ledger: entry.header().ledger,
            why: "no ledger is begun",
        })?;
        ledger.check(entry)?;
        let bytes = entry.header().entry_len();
        let open = ledger.block.as_ref();
        if open.is_some_and(|open| BLOCK_HEADER_BYTES + open.bytes + bytes > self.block_bytes) {
            ledger.close_block(&mut self.at, out);
        }
        ledger.add(entry)
    }

    /// Ends the ledger: its last block and its index are pushed.
    ///
    /// # Errors
    /// [`SegmentError`]: the segment is void. An entry is missing, or the totals are not those that it was closed with.
    pub fn end(&mut self, out: &mut Vec<Bytes>) -> Result<(), SegmentError> {
        let Some(mut ledger) = self.ledger.take() else {
            return Ok(());
        };
        ledger.check_whole()?;
        ledger.close_block(&mut self.at, out);
        let OpenLedger {
            plan: LedgerPlan { head, aborted },
            first_byte,
            rows: blocks,
            ..
        } = ledger;
        let index = Index {
            head,
            blocks,
            aborted,
        };
        let bytes = index.encode()?;
        self.rows.push(DirectoryRow {
            ledger: head.ledger,
            first_byte,
            index_at: self.at,
            index_bytes: bytes.len() as u32,
            index_crc: seal_of(&bytes),
            end: head.totals.end,
        });
        self.at += bytes.len() as u64;
        out.push(bytes);
        Ok(())
    }

    /// Ends the segment.
    ///
    /// # Errors
    /// [`SegmentError`]: there are no ledgers, or the last is not ended.
    pub fn finish(self, out: &mut Vec<Bytes>) -> Result<Written, SegmentError> {
        if let Some(open) = &self.ledger {
            let ledger = open.plan.head.ledger;
            let why = "it is not ended";
            return Err(SegmentError::Unfit { ledger, why });
        }
        let directory = Directory { rows: self.rows };
        let bytes = directory.encode()?;
        let trailer = Trailer {
            segment: self.segment,
            directory_at: self.at,
            directory_bytes: bytes.len() as u32,
            directory_crc: seal_of(&bytes),
            object_bytes: self.at + (bytes.len() + TRAILER_BYTES) as u64,
        };
        out.push(bytes);
        out.push(Bytes::copy_from_slice(&trailer.encode()));
        Ok(Written {
            segment: self.segment,
            object_bytes: trailer.object_bytes,
            directory,
        })
    }
}

impl OpenLedger {
    /// The entry is the next one, and its bytes are what its header says.
    fn check(&mut self, entry: &Entry) -> Result<(), SegmentError> {
        let (header, ledger) = (entry.header(), self.plan.head.ledger);
        if header.ledger != ledger || header.entry != self.next {
            let expected = self.next;
            return Err(SegmentError::NotNext { ledger, expected });
        }
        entry
            .verify()
            .map_err(|error| SegmentError::Entry { ledger, error })?;
        if header.first_offset.0 != self.next_offset {
            return Err(SegmentError::Offsets {
                ledger,
                entry: header.entry,
                found: header.first_offset,
                expected: Offset(self.next_offset),
            });
        }
        let totals = Totals {
            bytes: self.totals.bytes + u64::from(header.payload_len),
            digest: self.totals.digest.wrapping_add(entry.digest_share()),
        };
        if header.totals() != totals {
            return Err(SegmentError::Totals { ledger });
        }
        self.totals = totals;
        Ok(())
    }

    fn add(&mut self, entry: &Entry) -> Result<(), SegmentError> {
        let (header, ledger) = (entry.header(), self.plan.head.ledger);
        let envelope = Envelope::decode(&entry.envelope());
        let envelope = envelope.map_err(|error| SegmentError::Envelope { ledger, error })?;
        let block = self.block.get_or_insert_with(|| OpenBlock {
            first: header.entry,
            first_offset: header.first_offset,
            entries: 0,
            bytes: 0,
            crc: Crc32c::default(),
            parts: Vec::new(),
            min_timestamp: TimestampMs::MAX,
            max_timestamp: TimestampMs::MIN,
        });
        block.parts.push(Bytes::copy_from_slice(&header.encode()));
        block.parts.extend(entry.payload_parts().iter().cloned());
        let added = block.parts.len() - 1 - entry.payload_parts().len();
        block.parts[added..]
            .iter()
            .for_each(|part| block.crc.update(part));
        block.bytes += header.entry_len();
        block.entries += 1;
        for batch in &envelope.batches {
            block.min_timestamp = block.min_timestamp.min(batch.base_timestamp);
            block.max_timestamp = block.max_timestamp.max(batch.max_timestamp);
        }
        self.running_max = self.running_max.max(envelope.running_max_timestamp);
        self.records += u64::from(header.record_count);
        self.next_offset = header.end_offset().0;
        self.next = self.next.next();
        Ok(())
    }

    fn close_block(&mut self, at: &mut u64, out: &mut Vec<Bytes>) {
        let Some(block) = self.block.take() else {
            return;
        };
        let header = BlockHeader {
            ledger: self.plan.head.ledger,
            first: block.first,
            first_offset: block.first_offset,
            entries: block.entries,
            body_bytes: block.bytes as u32,
            body_crc: block.crc.finish(),
        };
        self.rows.push(BlockRow {
            first: block.first,
            first_offset: block.first_offset,
            at: *at,
            bytes: header.block_bytes() as u32,
            crc: header.body_crc,
            min_timestamp: block.min_timestamp,
            max_timestamp: block.max_timestamp,
            running_max_timestamp: self.running_max,
        });
        *at += header.block_bytes() as u64;
        out.push(Bytes::copy_from_slice(&encode_block_header(&header)));
        out.extend(block.parts);
    }

    /// What was written is what the ledger was closed with (storage.md O5).
    fn check_whole(&self) -> Result<(), SegmentError> {
        let (closed, ledger) = (self.plan.head.totals, self.plan.head.ledger);
        if self.next != closed.end {
            let expected = self.next;
            return Err(SegmentError::NotNext { ledger, expected });
        }
        let span = self.next_offset - self.plan.head.base_offset.0;
        let same = span == closed.offset_span
            && self.records == closed.record_count
            && self.totals.bytes == closed.bytes
            && self.totals.digest == closed.digest;
        match same {
            true => Ok(()),
            false => Err(SegmentError::Totals { ledger }),
        }
    }
}
