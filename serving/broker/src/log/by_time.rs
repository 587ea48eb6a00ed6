//! Finds the first record that is not older than a time.
//!
//! The running maximum in the envelopes says where to begin, and the records themselves have the last word: headers come from
//! producers.

use hulse_proto::batch::{self, BatchHeader};
use hulse_proto::bookie::ReadClass;
use hulse_proto::error::Fault;
use hulse_proto::id::{EntryId, Offset};
use hulse_proto::time::TimestampMs;

use super::reader::{LogReader, Search, damaged, decode_envelope, split};
use crate::storage_fault;

/// Heads asked for at a time; the first entry is mostly the one.
const SCAN_BYTES: u32 = 64 << 10;

impl LogReader {
    pub(crate) async fn offset_at_time(
        &self,
        timestamp: TimestampMs,
    ) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        let ledgers: Vec<Search> = self.with_view(|view| {
            let spans = view.ledgers.iter();
            let filled = spans.filter(|span| span.end_entry > EntryId(0));
            filled
                .map(|span| Search::whole(span, ReadClass::CatchUp))
                .collect()
        });
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
            if let Some(found) = first_record_from(&search, EntryId(below), timestamp).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl LogReader {
    /// The first of the records with the highest timestamp. The last entry's running maximum says which that is; should no record
    /// have it (a header may name a later time than its records have), there is none.
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
        self.offset_at_time(highest).await
    }
}

/// The first record in time from `entry` on. Mostly it is in that entry; but a header may name a later time than its records
/// have, and the running maximum survives the loss of the record that set it.
async fn first_record_from(
    search: &Search,
    entry: EntryId,
    timestamp: TimestampMs,
) -> Result<Option<(Offset, TimestampMs)>, Fault> {
    let mut next = entry;
    while next < search.end_entry {
        let heads = search
            .reader
            .read_heads(next, search.end_entry, SCAN_BYTES, ReadClass::CatchUp)
            .await;
        let heads = heads.map_err(|error| storage_fault::read(search.ledger, &error))?;
        let Some(last) = heads.last() else {
            return Err(damaged(
                search.ledger,
                &"a ledger answered no entry where one must be",
            ));
        };
        next = last.header.entry.next();
        for head in &heads {
            let entry = head.header.entry;
            let envelope = decode_envelope(search.ledger, entry, &head.envelope)?;
            if envelope
                .batches
                .iter()
                .any(|batch| batch.max_timestamp >= timestamp)
                && let Some(found) = first_record_at(search, entry, timestamp).await?
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
    timestamp: TimestampMs,
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
            if info.max_timestamp < timestamp {
                continue;
            }
            let base = BatchHeader::view(&batch)
                .map_err(|error| damaged(search.ledger, &error))?
                .base_offset;
            // What a producer compressed into nonsense has no records; readers say so when they come to it.
            let records = batch::decode(&batch).unwrap_or_default();
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
