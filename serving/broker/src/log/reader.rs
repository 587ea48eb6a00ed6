//! Reads of a partition's log, from memory where the tail is, else from its ledgers.
//!
//! Never inside the partition's task: a reader looks at the view under a short lock and does its I/O outside.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bookie_client::{LedgerReader, ReadError};
use bytes::Bytes;
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
    /// How long the batches of its entry are together, of which `bytes` is a slice and which it keeps in memory.
    pub entry_bytes: usize,
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
pub(super) struct Search {
    pub(super) ledger: LedgerId,
    pub(super) reader: LedgerReader,
    pub(super) base: Offset,
    /// Where the ledger ends.
    pub(super) end: Offset,
    pub(super) end_entry: EntryId,
    pub(super) below: EntryId,
    above: EntryId,
    exact: bool,
    /// Which queue its reads wait in.
    pub(super) class: ReadClass,
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
        let read = match self.place(start, max_bytes)? {
            Place::Served(chunk) => return Ok(chunk),
            Place::Ledger(search) => self.read_ledger(search, start, max_bytes).await,
        };
        // A trim that came meanwhile may have taken the ledger away, and explains whatever went wrong.
        read.or_else(|fault| {
            self.lock().view.offsets().check(start)?;
            Err(fault)
        })
    }

    fn place(&self, start: Offset, max_bytes: usize) -> Result<Place, Fault> {
        let mut shared = self.lock();
        let offsets = shared.view.offsets();
        let high_watermark = offsets.high_watermark;
        shared.view.check(start)?;
        let mut chunk = ReadChunk::empty(start, high_watermark);
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
            end: span.end,
            end_entry: span.end_entry,
            below: hint.map_or(below, |(_, entry)| *entry),
            above: above.unwrap_or(span.end_entry),
            exact: hint.is_some(),
            // The last ledger is the one that tailing readers share.
            class: match at + 1 == shared.view.ledgers.len() {
                true => ReadClass::Tail,
                false => ReadClass::CatchUp,
            },
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
            spans
                .map(|span| Search::whole(span, ReadClass::Recovery))
                .collect()
        };
        let mut replayed = 0;
        for mut search in spans {
            self.narrow(&mut search, start).await?;
            let mut next = search.below;
            while next < search.end_entry {
                let heads = search
                    .reader
                    .read_heads(next, search.end_entry, READ_BYTES_MAX as u32, search.class)
                    .await;
                let heads = match heads {
                    Err(error) if search.is_lost(next, &error) => {
                        tracing::warn!(ledger = %search.ledger, entry = %next, "an entry that is recorded as lost is passed over");
                        next = search.after_loss(next).await?.0;
                        continue;
                    }
                    heads => heads.map_err(|error| storage_fault::read(search.ledger, &error))?,
                };
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
            self.narrow(&mut search, start).await?;
            search.below = search.last_entry_at(start).await?;
        }
        let high_watermark = self.lock().view.offsets().high_watermark;
        let mut chunk = ReadChunk::empty(start, high_watermark);
        let mut next = search.below;
        // Once, unless what was found lies wholly below `start`, and a recorded loss above it.
        while chunk.end == start && next < search.end_entry {
            let read = search
                .reader
                .read(next, search.end_entry, max_bytes as u32, search.class);
            let entries = match read.await {
                Err(error) if search.is_lost(next, &error) => {
                    let (after, begins) = search.after_loss(next).await?;
                    if begins > chunk.end {
                        chunk.skip_to(begins, SkipReason::Lost);
                    }
                    next = after;
                    continue;
                }
                entries => entries.map_err(|error| storage_fault::read(search.ledger, &error))?,
            };
            for entry in &entries {
                let header = entry.header();
                let envelope = decode_envelope(search.ledger, header.entry, &entry.envelope())?;
                chunk.add(header.first_offset, &envelope, &entry.body())?;
                next = header.entry.next();
            }
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

    /// Where to begin in a ledger so that no record at or above `start` is missed, some below it may come, too.
    pub(super) async fn begin_at(&self, search: &mut Search, start: Offset) -> Result<(), Fault> {
        if start > search.base {
            self.narrow(search, start).await?;
            search.below = search.last_entry_at(start).await?;
            search.above = search.end_entry;
        }
        Ok(())
    }

    /// Halves `below..above` until it is short: `below` always begins at or before `start`, `above` never does.
    async fn narrow(&self, search: &mut Search, start: Offset) -> Result<(), Fault> {
        while search.above.0.saturating_sub(search.below.0) > NEAR_ENTRIES {
            let probe = EntryId(search.below.0.midpoint(search.above.0));
            let (middle, head) = match search.head_beyond(probe).await? {
                Some(found) => (found.header.entry, found.header),
                // Everything from the middle on is lost or damaged, so what is left lies below it.
                None => {
                    search.above = probe;
                    continue;
                }
            };
            self.with_view(|view| {
                if let Some(span) = view
                    .ledgers
                    .iter_mut()
                    .find(|span| span.ledger == search.ledger)
                {
                    span.index.note(head.first_offset, middle);
                }
            });
            if head.first_offset <= start {
                search.below = middle;
            } else {
                search.above = middle.min(probe);
            }
        }
        Ok(())
    }
}

impl Search {
    pub(super) fn whole(span: &super::view::LedgerSpan, class: ReadClass) -> Self {
        Self {
            ledger: span.ledger,
            reader: span.reader.clone(),
            base: span.base,
            end: span.end,
            end_entry: span.end_entry,
            below: EntryId(0),
            above: span.end_entry,
            exact: false,
            class,
        }
    }

    /// The last entry in `below..above` that begins at or before `start`.
    async fn last_entry_at(&self, start: Offset) -> Result<EntryId, Fault> {
        let mut found = self.below;
        let mut next = self.below;
        while next < self.above && start > self.base {
            let heads = self
                .reader
                .read_heads(next, self.above, READ_BYTES_MAX as u32, self.class)
                .await;
            let heads = match heads {
                // Reading begins at or before it, so it is met there if it matters.
                Err(ReadError::Damaged { .. }) => {
                    next = next.next();
                    continue;
                }
                heads => heads.map_err(|error| storage_fault::read(self.ledger, &error))?,
            };
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
    fn empty(start: Offset, high_watermark: Offset) -> Self {
        Self {
            prev_end: start,
            batches: vec![],
            skipped: vec![],
            end: start,
            high_watermark,
        }
    }

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
                    entry_bytes: body.len(),
                });
                self.end = end;
            }
            offset = end;
        }
        Ok(())
    }
}

/// The batches of an entry, as slices.
pub(super) fn split(envelope: &Envelope, body: &Bytes) -> Result<Vec<Bytes>, Fault> {
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

pub(super) fn decode_envelope(
    ledger: LedgerId,
    entry: EntryId,
    bytes: &[u8],
) -> Result<Envelope, Fault> {
    Envelope::decode(bytes).map_err(|error| damaged(ledger, &format!("entry {entry}: {error}")))
}

pub(super) fn damaged(ledger: LedgerId, why: &dyn std::fmt::Display) -> Fault {
    Fault::new(
        Reason::DataDamaged,
        format!("ledger {ledger} cannot be read: {why}"),
    )
    .with("ledger", ledger)
}
