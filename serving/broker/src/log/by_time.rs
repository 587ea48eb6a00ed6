//! Finds the first record that is not older than a time.
//!
//! The running maximum in the envelopes says where to begin, and the records themselves have the last word: headers come from
//! producers. Records below the log start are not there any more, wherever they still lie.

use hulse_proto::batch::{self, BatchHeader};
use hulse_proto::bookie::ReadClass;
use hulse_proto::entry::Envelope;
use hulse_proto::error::Fault;
use hulse_proto::id::{EntryId, Offset};
use hulse_proto::time::TimestampMs;

use super::reader::{LogReader, Search, damaged, decode_envelope, split};
use crate::storage_fault;

/// Heads asked for at a time; the first entry is mostly the one.
const SCAN_BYTES: u32 = 64 << 10;

/// The records that are looked for.
#[derive(Clone, Copy)]
struct Wanted {
    /// Not older than this.
    timestamp: TimestampMs,
    /// Not below the log start.
    floor: Offset,
}

impl LogReader {
    pub(crate) async fn offset_at_time(
        &self,
        timestamp: TimestampMs,
    ) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        loop {
            let floor = self.with_view(|view| view.offsets().log_start);
            match self.find(Wanted { timestamp, floor }).await {
                // A trim came meanwhile: what was looked at may be gone.
                _ if self.with_view(|view| view.offsets().log_start) > floor => {}
                found => return found,
            }
        }
    }

    /// The ledgers that hold records at or above `floor`, oldest first.
    fn kept(&self, floor: Offset) -> Vec<Search> {
        self.with_view(|view| {
            let spans = view.ledgers.iter();
            let filled = spans.filter(|span| span.end_entry > EntryId(0) && span.end > floor);
            filled
                .map(|span| Search::whole(span, ReadClass::CatchUp))
                .collect()
        })
    }

    async fn find(&self, wanted: Wanted) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        let timestamp = wanted.timestamp;
        for mut search in self.kept(wanted.floor) {
            let last = EntryId(search.end_entry.0 - 1);
            if search.head(last).await?.1.running_max_timestamp < timestamp {
                continue;
            }
            self.begin_at(&mut search, wanted.floor).await?;
            // running_max_timestamp is monotone over entries (storage.md, amendment to 4.4), so halving finds the first.
            let (mut below, mut above) = (search.below.0, last.0);
            while below < above {
                let middle = below.midpoint(above);
                if search.head(EntryId(middle)).await?.1.running_max_timestamp < timestamp {
                    below = middle + 1;
                } else {
                    above = middle;
                }
            }
            if let Some(found) = first_record_from(&search, EntryId(below), wanted).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl LogReader {
    /// The first of the records with the highest timestamp. The last entry's running maximum says which that is, unless that record
    /// was trimmed: then the headers say it. Should no record have it (a header may name a later time than its records have), there
    /// is none.
    pub(crate) async fn offset_of_max_time(&self) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        let last: Option<Search> = self.with_view(|view| {
            let mut spans = view.ledgers.iter().rev();
            let filled = spans.find(|span| span.end_entry > EntryId(0))?;
            Some(Search::whole(filled, ReadClass::CatchUp))
        });
        let Some(search) = last else {
            return Ok(None);
        };
        let last = EntryId(search.end_entry.0 - 1);
        let highest = search.head(last).await?.1.running_max_timestamp;
        let found = self.offset_at_time(highest).await?;
        let floor = self.with_view(|view| view.offsets().log_start);
        if found.is_some() || floor == Offset(0) {
            return Ok(found);
        }
        let mut kept = TimestampMs::MIN;
        for mut search in self.kept(floor) {
            self.begin_at(&mut search, floor).await?;
            let mut next = search.below;
            while next < search.end_entry {
                let heads = heads(&search, next).await?;
                for (entry, envelope) in &heads {
                    let times = envelope.batches.iter().map(|batch| batch.max_timestamp);
                    kept = times.fold(kept, TimestampMs::max);
                    next = entry.next();
                }
            }
        }
        match kept {
            TimestampMs::MIN => Ok(None),
            kept => self.offset_at_time(kept).await,
        }
    }
}

/// Some envelopes from `next` on, which is below the end.
async fn heads(search: &Search, next: EntryId) -> Result<Vec<(EntryId, Envelope)>, Fault> {
    let heads = search
        .reader
        .read_heads(next, search.end_entry, SCAN_BYTES, ReadClass::CatchUp)
        .await;
    let heads = heads.map_err(|error| storage_fault::read(search.ledger, &error))?;
    if heads.is_empty() {
        return Err(damaged(
            search.ledger,
            &"a ledger answered no entry where one must be",
        ));
    }
    let decoded = heads.iter().map(|head| {
        let entry = head.header.entry;
        Ok((
            entry,
            decode_envelope(search.ledger, entry, &head.envelope)?,
        ))
    });
    decoded.collect()
}

/// The first record in time from `entry` on. Mostly it is in that entry; but a header may name a later time than its records
/// have, and the running maximum survives the loss of the record that set it.
async fn first_record_from(
    search: &Search,
    entry: EntryId,
    wanted: Wanted,
) -> Result<Option<(Offset, TimestampMs)>, Fault> {
    let mut next = entry;
    while next < search.end_entry {
        for (entry, envelope) in heads(search, next).await? {
            next = entry.next();
            if envelope
                .batches
                .iter()
                .any(|batch| batch.max_timestamp >= wanted.timestamp)
                && let Some(found) = first_record_at(search, entry, wanted).await?
            {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// The first record in time within one entry.
async fn first_record_at(
    search: &Search,
    entry: EntryId,
    wanted: Wanted,
) -> Result<Option<(Offset, TimestampMs)>, Fault> {
    let read = search
        .reader
        .read(entry, entry.next(), 1, ReadClass::CatchUp)
        .await;
    let entries = read.map_err(|error| storage_fault::read(search.ledger, &error))?;
    for entry in &entries {
        let envelope = decode_envelope(search.ledger, entry.header().entry, &entry.envelope())?;
        for (info, batch) in envelope
            .batches
            .iter()
            .zip(split(&envelope, &entry.body())?)
        {
            if info.max_timestamp < wanted.timestamp {
                continue;
            }
            let base = BatchHeader::view(&batch)
                .map_err(|error| damaged(search.ledger, &error))?
                .base_offset;
            // What a producer compressed into nonsense has no records; readers say so when they come to it.
            let records = batch::decode(&batch).unwrap_or_default();
            let placed = records.iter().map(|record| {
                let offset = Offset(base.0 + u64::from(record.offset_delta));
                (offset, record.timestamp)
            });
            let mut placed = placed.filter(|(offset, _)| *offset >= wanted.floor);
            if let Some(found) = placed.find(|(_, time)| *time >= wanted.timestamp) {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}
