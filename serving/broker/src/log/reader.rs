//! Reads of a partition's log, from memory where the tail is, else from its ledgers.
//!
//! Never inside the partition's task: a reader looks at the view under a short lock and does its I/O outside.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bookie_client::LedgerReader;
use bytes::Bytes;
use hulse_proto::batch::{self, BatchHeader};
use hulse_proto::bookie::ReadClass;
use hulse_proto::entry::{EntryHeader, EntryKind, Envelope};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{EntryId, LedgerId, Offset};
use hulse_proto::time::TimestampMs;

use super::index::NEAR_ENTRIES;
use super::view::LogView;
use crate::storage_fault;

/// Positions of readers remembered per partition, so that a sequential reader never searches.
const CURSORS_MAX: usize = 256;
/// Most bytes one read asks of a ledger.
const READ_BYTES_MAX: usize = 32 << 20;

/// Why offsets were passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipReason {
    /// A transaction marker.
    Control,
    /// Compaction removed the record.
    Compacted,
    /// A recorded loss.
    Lost,
}

/// A stored batch with its offsets in place.
#[derive(Debug, Clone)]
pub struct ReadBatch {
    /// The RecordBatch.
    pub bytes: Bytes,
    /// The owner's clock at its append, ms since 1970.
    pub append_time: TimestampMs,
}

/// What a read found: `[prev_end, end)` is exactly covered by `batches` and `skipped`.
#[derive(Debug, Clone)]
pub struct ReadChunk {
    /// The asked start, or the base offset of the batch it lies in.
    pub prev_end: Offset,
    /// In order.
    pub batches: Vec<ReadBatch>,
    /// Half-open ranges, in order.
    pub skipped: Vec<(Offset, Offset, SkipReason)>,
    /// Where to read on.
    pub end: Offset,
    /// When it was read.
    pub high_watermark: Offset,
}

struct Shared {
    view: LogView,
    /// End offset of a read → where the next entry stands.
    cursors: BTreeMap<Offset, (LedgerId, EntryId)>,
}

/// Reads of one partition. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LogReader(Arc<Mutex<Shared>>);

/// Where a read has to look.
enum Place {
    Served(ReadChunk),
    Ledger(Search),
}

/// A ledger and what is known of where an offset stands in it.
struct Search {
    ledger: LedgerId,
    reader: LedgerReader,
    base: Offset,
    end_entry: EntryId,
    below: EntryId,
    above: EntryId,
    exact: bool,
    /// The last ledger, which tailing readers share.
    last: bool,
}

impl LogReader {
    pub(crate) fn new(view: LogView) -> Self {
        Self(Arc::new(Mutex::new(Shared {
            view,
            cursors: BTreeMap::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
    }

    /// Changes or looks at the view. The lock is held for the call only.
    pub(crate) fn with_view<T>(&self, change: impl FnOnce(&mut LogView) -> T) -> T {
        change(&mut self.lock().view)
    }

    pub(crate) async fn read(&self, start: Offset, max_bytes: usize) -> Result<ReadChunk, Fault> {
        let max_bytes = max_bytes.clamp(1, READ_BYTES_MAX);
        match self.place(start, max_bytes)? {
            Place::Served(chunk) => Ok(chunk),
            Place::Ledger(search) => self.read_ledger(search, start, max_bytes).await,
        }
    }

    fn place(&self, start: Offset, max_bytes: usize) -> Result<Place, Fault> {
        let mut shared = self.lock();
        let offsets = shared.view.offsets();
        let high_watermark = offsets.high_watermark;
        if start < offsets.log_start || start > high_watermark {
            return Err(out_of_range(start, offsets.log_start, high_watermark));
        }
        let mut chunk = ReadChunk {
            prev_end: start,
            batches: vec![],
            skipped: vec![],
            end: start,
            high_watermark,
        };
        if start == high_watermark {
            return Ok(Place::Served(chunk));
        }
        let near = shared.view.tail.from(start, max_bytes);
        if !near.is_empty() {
            for entry in near {
                chunk.add(entry.first, &entry.envelope, &entry.joined())?;
            }
            return Ok(Place::Served(chunk));
        }
        let Some(at) = shared.view.ledger_at(start) else {
            // Above the last ledger and below the high watermark: only a recorded loss does that.
            chunk.skip_to(high_watermark, SkipReason::Lost);
            return Ok(Place::Served(chunk));
        };
        let span = &shared.view.ledgers[at];
        if start < span.base {
            chunk.skip_to(span.base, SkipReason::Lost);
            return Ok(Place::Served(chunk));
        }
        let (below, above) = span.index.around(start);
        let hint = shared
            .cursors
            .get(&start)
            .filter(|(ledger, _)| *ledger == span.ledger);
        Ok(Place::Ledger(Search {
            ledger: span.ledger,
            reader: span.reader.clone(),
            base: span.base,
            end_entry: span.end_entry,
            below: hint.map_or(below, |(_, entry)| *entry),
            above: above.unwrap_or(span.end_entry),
            exact: hint.is_some(),
            last: at + 1 == shared.view.ledgers.len(),
        }))
    }

    /// Shows `fold` the header and envelope of every entry from the one that holds `start` on, in order. Part of a take-over, before
    /// anything is appended.
    pub(crate) async fn replay(
        &self,
        start: Offset,
        mut fold: impl FnMut(&EntryHeader, &Envelope),
    ) -> Result<u64, Fault> {
        let spans: Vec<Search> = {
            let shared = self.lock();
            let spans = shared.view.ledgers.iter().filter(|span| span.end > start);
            spans.map(Search::whole).collect()
        };
        let mut replayed = 0;
        for mut search in spans {
            self.narrow(&mut search, |head| head.first_offset <= start)
                .await?;
            let mut next = search.below;
            while next < search.end_entry {
                let heads = search
                    .reader
                    .read_heads(next, search.end_entry, READ_BYTES_MAX as u32)
                    .await;
                let heads = heads.map_err(|error| storage_fault::read(search.ledger, &error))?;
                for head in &heads {
                    let envelope =
                        decode_envelope(search.ledger, head.header.entry, &head.envelope)?;
                    fold(&head.header, &envelope);
                    next = head.header.entry.next();
                    replayed += 1;
                }
                if heads.is_empty() {
                    return Err(damaged(
                        search.ledger,
                        &"a ledger answered no entry where one must be",
                    ));
                }
            }
        }
        Ok(replayed)
    }

    async fn read_ledger(
        &self,
        mut search: Search,
        start: Offset,
        max_bytes: usize,
    ) -> Result<ReadChunk, Fault> {
        if !search.exact {
            self.narrow(&mut search, |head| head.first_offset <= start)
                .await?;
            search.below = search.last_entry_at(start).await?;
        }
        let class = if search.last {
            ReadClass::Tail
        } else {
            ReadClass::CatchUp
        };
        let entries = search
            .reader
            .read(search.below, search.end_entry, max_bytes as u32, class)
            .await;
        let entries = entries.map_err(|error| storage_fault::read(search.ledger, &error))?;
        let high_watermark = self.lock().view.offsets().high_watermark;
        let mut chunk = ReadChunk {
            prev_end: start,
            batches: vec![],
            skipped: vec![],
            end: start,
            high_watermark,
        };
        let mut next = search.below;
        for entry in &entries {
            let envelope = decode_envelope(search.ledger, entry.header().entry, &entry.envelope())?;
            chunk.add(entry.header().first_offset, &envelope, &entry.body())?;
            next = entry.header().entry.next();
        }
        if next < search.end_entry {
            self.remember(chunk.end, search.ledger, next);
        }
        Ok(chunk)
    }

    fn remember(&self, end: Offset, ledger: LedgerId, entry: EntryId) {
        let mut shared = self.lock();
        if shared.cursors.len() >= CURSORS_MAX {
            shared.cursors.pop_first();
        }
        shared.cursors.insert(end, (ledger, entry));
    }

    /// Halves `below..above` until it is short: `below` always satisfies `at_or_before`, `above` never does.
    async fn narrow(
        &self,
        search: &mut Search,
        at_or_before: impl Fn(&EntryHeader) -> bool,
    ) -> Result<(), Fault> {
        while search.above.0.saturating_sub(search.below.0) > NEAR_ENTRIES {
            let middle = EntryId(search.below.0.midpoint(search.above.0));
            let head = search.head(middle).await?.0;
            self.with_view(|view| {
                if let Some(span) = view
                    .ledgers
                    .iter_mut()
                    .find(|span| span.ledger == search.ledger)
                {
                    span.index.note(head.first_offset, middle);
                }
            });
            if at_or_before(&head) {
                search.below = middle;
            } else {
                search.above = middle;
            }
        }
        Ok(())
    }

    pub(crate) async fn offset_at_time(
        &self,
        timestamp: TimestampMs,
    ) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        let ledgers: Vec<Search> = {
            let shared = self.lock();
            let spans = shared
                .view
                .ledgers
                .iter()
                .filter(|span| span.end_entry > EntryId(0));
            spans.map(Search::whole).collect()
        };
        for search in ledgers {
            let last = EntryId(search.end_entry.0 - 1);
            if search.head(last).await?.1.running_max_timestamp < timestamp {
                continue;
            }
            // running_max_timestamp is monotone over entries (storage.md, amendment to 4.4), so halving finds the first.
            let (mut below, mut above) = (0, last.0);
            while below < above {
                let middle = below.midpoint(above);
                if search.head(EntryId(middle)).await?.1.running_max_timestamp < timestamp {
                    below = middle + 1;
                } else {
                    above = middle;
                }
            }
            return self
                .first_record_at(&search, EntryId(below), timestamp)
                .await;
        }
        Ok(None)
    }

    async fn first_record_at(
        &self,
        search: &Search,
        entry: EntryId,
        timestamp: TimestampMs,
    ) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        let read = search
            .reader
            .read(entry, entry.next(), 1, ReadClass::CatchUp)
            .await;
        let entries = read.map_err(|error| storage_fault::read(search.ledger, &error))?;
        for entry in &entries {
            let envelope = decode_envelope(search.ledger, entry.header().entry, &entry.envelope())?;
            for batch in split(&envelope, &entry.body())? {
                let base = BatchHeader::view(&batch)
                    .map_err(|error| damaged(search.ledger, &error))?
                    .base_offset;
                let records =
                    batch::decode(&batch).map_err(|error| damaged(search.ledger, &error))?;
                if let Some(record) = records.iter().find(|record| record.timestamp >= timestamp) {
                    return Ok(Some((
                        Offset(base.0 + u64::from(record.offset_delta)),
                        record.timestamp,
                    )));
                }
            }
        }
        Ok(None)
    }
}

impl Search {
    fn whole(span: &super::view::LedgerSpan) -> Self {
        Self {
            ledger: span.ledger,
            reader: span.reader.clone(),
            base: span.base,
            end_entry: span.end_entry,
            below: EntryId(0),
            above: span.end_entry,
            exact: false,
            last: false,
        }
    }

    async fn head(&self, entry: EntryId) -> Result<(EntryHeader, Envelope), Fault> {
        let heads = self.reader.read_heads(entry, entry.next(), 1).await;
        let heads = heads.map_err(|error| storage_fault::read(self.ledger, &error))?;
        let head = heads
            .first()
            .ok_or_else(|| damaged(self.ledger, &"a ledger answered no entry where one must be"))?;
        Ok((
            head.header,
            decode_envelope(self.ledger, entry, &head.envelope)?,
        ))
    }

    /// The last entry in `below..above` that begins at or before `start`.
    async fn last_entry_at(&self, start: Offset) -> Result<EntryId, Fault> {
        let mut found = self.below;
        let mut next = self.below;
        while next < self.above && start > self.base {
            let heads = self
                .reader
                .read_heads(next, self.above, READ_BYTES_MAX as u32)
                .await;
            let heads = heads.map_err(|error| storage_fault::read(self.ledger, &error))?;
            for head in &heads {
                if head.header.first_offset > start {
                    return Ok(found);
                }
                found = head.header.entry;
            }
            next = match heads.last() {
                Some(last) => last.header.entry.next(),
                None => break,
            };
        }
        Ok(found)
    }
}

impl ReadChunk {
    fn skip_to(&mut self, end: Offset, reason: SkipReason) {
        self.skipped.push((self.end, end, reason));
        self.end = end;
    }

    /// Adds the batches of one entry that are not wholly before the chunk's end.
    fn add(&mut self, first: Offset, envelope: &Envelope, body: &Bytes) -> Result<(), Fault> {
        if envelope.kind != EntryKind::Data {
            let span: u64 = envelope
                .batches
                .iter()
                .map(|batch| u64::from(batch.span))
                .sum();
            let end = Offset(first.0 + span);
            if end > self.end {
                self.skip_to(end, SkipReason::Control);
            }
            return Ok(());
        }
        let mut offset = first;
        for (info, bytes) in envelope.batches.iter().zip(split(envelope, body)?) {
            let end = Offset(offset.0 + u64::from(info.span));
            if end > self.end {
                if self.batches.is_empty() && self.skipped.is_empty() {
                    self.prev_end = offset.min(self.prev_end);
                }
                self.batches.push(ReadBatch {
                    bytes,
                    append_time: envelope.append_time,
                });
                self.end = end;
            }
            offset = end;
        }
        Ok(())
    }
}

/// The batches of an entry, as slices.
fn split(envelope: &Envelope, body: &Bytes) -> Result<Vec<Bytes>, Fault> {
    let mut at = 0_usize;
    let mut batches = Vec::with_capacity(envelope.batches.len());
    for info in &envelope.batches {
        let end = at + info.length as usize;
        if end > body.len() {
            let why = format!(
                "envelope names {end} bytes of batches, the entry has {}",
                body.len()
            );
            return Err(Fault::new(Reason::DataDamaged, why));
        }
        batches.push(body.slice(at..end));
        at = end;
    }
    Ok(batches)
}

fn decode_envelope(ledger: LedgerId, entry: EntryId, bytes: &[u8]) -> Result<Envelope, Fault> {
    Envelope::decode(bytes).map_err(|error| damaged(ledger, &format!("entry {entry}: {error}")))
}

fn damaged(ledger: LedgerId, why: &dyn std::fmt::Display) -> Fault {
    Fault::new(
        Reason::DataDamaged,
        format!("ledger {ledger} cannot be read: {why}"),
    )
    .with("ledger", ledger)
}

fn out_of_range(asked: Offset, log_start: Offset, high_watermark: Offset) -> Fault {
    let why = format!(
        "offset {asked} is not in the log, which holds {log_start} to {high_watermark}; start at `start`, `end` or an offset between"
    );
    Fault::new(Reason::OffsetOutOfRange, why)
        .with("log_start", log_start)
        .with("high_watermark", high_watermark)
}
