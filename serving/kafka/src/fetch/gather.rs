//! Reads what the partitions of a fetch hold.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use futures::stream;
use hulse_proto::batch::{BatchHeader, Compression, empty_batch};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, OwnerEpoch};
use serving_broker::{PartitionHandle, ReadBatch, ReadChunk, Topic};
use tokio::time::Instant;

use super::spot::{Found, Spot, TopicKey};
use crate::error_code::{self, Code};
use crate::link::Link;
use crate::requests::epoch_number;
use crate::wire;

/// Partitions that are opened at the same time for one request.
const OPENINGS_AT_ONCE: usize = 16;
/// Openings that are made ready at a time: each takes some kilobytes.
const OPENINGS_MADE: usize = 512;
/// Batches stay slices of their entry where they are at least this part of it.
const PINNED_SHARE: usize = 4;
/// First version whose clients know zstd (KIP-110).
const ZSTD_FROM: i16 = 10;

/// A partition that is open, or the code of why it is not.
pub(super) type Open = Result<PartitionHandle, Code>;

/// Opens what the spots name, as far as that is done by `until`.
pub(super) async fn open_all(link: &Link, spots: &[Spot], until: Instant) -> Vec<Open> {
    let mut topics = HashMap::new();
    for of_topic in of_topics(spots) {
        let key = (of_topic[0].topic.name.as_str(), of_topic[0].topic.id);
        if let std::collections::hash_map::Entry::Vacant(slot) = topics.entry(key) {
            slot.insert(link.topic(key.0, key.1, until).await);
        }
    }
    let mut opened = Vec::with_capacity(spots.len());
    for some in spots.chunks(OPENINGS_MADE) {
        let mut opening = Vec::with_capacity(some.len());
        for of_topic in of_topics(some) {
            let topic = &of_topic[0].topic;
            let topic = &topics[&(topic.name.as_str(), topic.id)];
            opening.extend(of_topic.iter().map(|spot| open(link, spot, topic, until)));
        }
        let mut opening = stream::iter(opening).buffered(OPENINGS_AT_ONCE);
        while let Some(open) = opening.next().await {
            opened.push(open);
        }
    }
    opened
}

/// Those of a topic that lie side by side: its name is hashed once for them.
fn of_topics(spots: &[Spot]) -> impl Iterator<Item = &[Spot]> {
    spots.chunk_by(|left, right| left.topic == right.topic)
}

async fn open(link: &Link, spot: &Spot, topic: &Result<Topic, Fault>, until: Instant) -> Open {
    let opened = match topic {
        Ok(topic) => link.open_to_read(topic, spot.index, until).await,
        Err(fault) => Err(fault.clone()),
    };
    opened.map_err(|fault| code(link, &spot.topic, &fault))
}

fn code(link: &Link, topic: &TopicKey, fault: &Fault) -> Code {
    link.front().metrics().fault(fault.reason);
    let code = error_code::of_fetch(fault.reason);
    error_code::by_id(topic.id, fault.reason, code)
}

/// Has it looked at once, for all partitions whose end was reached, whether they are this broker's still, where that is in doubt:
/// [`look`] then finds what was learnt.
pub(super) async fn dispel(spots: &[Spot], opens: &[Open]) {
    let at_end = spots.iter().zip(opens).filter_map(|(spot, open)| {
        let open = open.as_ref().ok().filter(|open| !open.is_certain())?;
        let reached = spot.offset >= wire::offset(open.offsets().high_watermark);
        reached.then(|| open.told_offsets_again())
    });
    futures::future::join_all(at_end).await;
}

/// Bytes that may still be put into an answer.
pub(super) struct Budget {
    /// Of the answer.
    pub(super) left: usize,
    /// A first batch goes in up to this length whatever the limits are (serving.md D2.7); 0 when something is in.
    pub(super) first_allowed: usize,
    /// A batch was left out as it did not fit: nothing more is read.
    pub(super) full: bool,
}

/// Looks at one partition and reads from it as much as the budget gives.
pub(super) async fn look(
    link: &Link,
    version: i16,
    spot: &Spot,
    open: &Open,
    budget: &mut Budget,
) -> Found {
    let open = match open {
        Ok(open) => open,
        Err(code) => return Found::failed(*code),
    };
    if let Some(fault) = open.ended() {
        let code = code(link, &spot.topic, &fault);
        return Found::failed(code);
    }
    let offsets = open.offsets();
    let beyond = open.beyond();
    // What is certain of a partition that does not open is the same under every epoch, and where it ends is no end.
    match &beyond {
        None => {
            if let Err(found) = check_epoch(spot, open) {
                return found;
            }
        }
        Some(fault) if spot.offset >= wire::offset(offsets.high_watermark) => {
            return Found::failed(code(link, &spot.topic, fault));
        }
        Some(_) => {}
    }
    let (begin, end) = (
        wire::offset(offsets.log_start),
        wire::offset(offsets.high_watermark),
    );
    let Some(offset) = u64::try_from(spot.offset)
        .ok()
        .filter(|_| (begin..=end).contains(&spot.offset))
    else {
        // A log that goes on elsewhere may have it.
        if let (true, Err(fault)) = (spot.offset > end, open.told_offsets().await) {
            return Found::failed(code(link, &spot.topic, &fault));
        }
        link.front().metrics().fault(Reason::OffsetOutOfRange);
        return Found {
            code: error_code::OFFSET_OUT_OF_RANGE,
            ..Found::empty(end, begin)
        };
    };
    if spot.offset == end {
        return match open.told_offsets_again().await {
            Ok(_) => Found::empty(end, begin),
            Err(fault) => Found::failed(code(link, &spot.topic, &fault)),
        };
    }
    read(
        link,
        (version, spot),
        open,
        (Offset(offset), begin, end),
        budget,
    )
    .await
}

/// Reads at an offset that the log holds, between its ends.
async fn read(
    link: &Link,
    (version, spot): (i16, &Spot),
    open: &PartitionHandle,
    (offset, begin, end): (Offset, i64, i64),
    budget: &mut Budget,
) -> Found {
    let bytes = spot.bytes_max.min(budget.left);
    budget.full |= budget.left == 0 && budget.first_allowed == 0;
    if budget.full || (bytes == 0 && budget.first_allowed == 0) {
        return Found {
            left_out: true,
            ..Found::empty(end, begin)
        };
    }
    match open.read(offset, bytes.max(1)).await {
        Ok(chunk) => {
            let epoch = open.leader_epoch();
            let limits = Limits {
                bytes,
                first_allowed: budget.first_allowed,
            };
            let (found, cut) = take(chunk, epoch, version, limits);
            budget.full |= cut && budget.left < spot.bytes_max;
            budget.left = budget.left.saturating_sub(found.bytes);
            if found.bytes > 0 {
                budget.first_allowed = 0;
            }
            Found {
                log_start: begin,
                left_out: found.bytes == 0 && found.code == error_code::NONE,
                ..found
            }
        }
        Err(fault) => Found {
            code: code(link, &spot.topic, &fault),
            ..Found::empty(end, begin)
        },
    }
}

/// A client that knows an older leader looks again; one that knows a newer one has met a broker that does not know yet.
fn check_epoch(spot: &Spot, open: &PartitionHandle) -> Result<(), Found> {
    let ours = epoch_number(open.leader_epoch());
    let code = match spot.epoch {
        ..0 => return Ok(()),
        known if known < ours => error_code::FENCED_LEADER_EPOCH,
        known if known > ours => error_code::UNKNOWN_LEADER_EPOCH,
        _ => return Ok(()),
    };
    Err(Found {
        leader_epoch: Some(ours),
        ..Found::failed(code)
    })
}

/// What one partition may put into an answer.
struct Limits {
    bytes: usize,
    /// As in [`Budget`].
    first_allowed: usize,
}

/// What of a chunk goes into the answer, whole batches; and whether a batch did not fit.
fn take(chunk: ReadChunk, epoch: OwnerEpoch, version: i16, limits: Limits) -> (Found, bool) {
    let end = wire::offset(chunk.high_watermark);
    let mut found = Found::empty(end, -1);
    // Offsets without records before the first batch: a client moves on by batches only, so it gets an empty one.
    let gap = chunk.skipped.first().filter(|(first, ..)| {
        let batch = chunk.batches.first();
        let header = batch.and_then(|batch| BatchHeader::view(&batch.bytes).ok());
        header.is_none_or(|header| *first < header.base_offset)
    });
    if let Some((first, after, _)) = gap {
        push(&mut found, empty_batch(*first, *after, epoch));
    }
    let mut cut = false;
    let mut bytes = found.bytes;
    let mut taken = Vec::with_capacity(chunk.batches.len());
    for batch in chunk.batches {
        let length = batch.bytes.len();
        let fits = bytes + length <= limits.bytes;
        if !fits && (bytes > 0 || length > limits.first_allowed) {
            cut = true;
            break;
        }
        if version < ZSTD_FROM && is_zstd(&batch.bytes) {
            if bytes == 0 {
                found.code = error_code::UNSUPPORTED_COMPRESSION;
            }
            break;
        }
        bytes += length;
        taken.push(batch);
    }
    for batch in unpinned(taken) {
        push(&mut found, batch);
    }
    (found, cut)
}

/// The batches. Where they are a small part of an entry they are copied out, as a slice would keep all of it in memory.
fn unpinned(mut batches: Vec<ReadBatch>) -> Vec<Bytes> {
    // What is of one entry lies side by side in it.
    let together = |left: &ReadBatch, right: &ReadBatch| {
        std::ptr::eq(left.bytes.as_ptr_range().end, right.bytes.as_ptr())
    };
    for of_entry in batches.chunk_by_mut(together) {
        let bytes: usize = of_entry.iter().map(|batch| batch.bytes.len()).sum();
        if bytes < of_entry[0].entry_bytes / PINNED_SHARE {
            for batch in of_entry {
                batch.bytes = Bytes::copy_from_slice(&batch.bytes);
            }
        }
    }
    batches.into_iter().map(|batch| batch.bytes).collect()
}

fn push(found: &mut Found, batch: Bytes) {
    found.bytes += batch.len();
    found.records.push(batch);
}

fn is_zstd(batch: &[u8]) -> bool {
    let header = BatchHeader::view(batch).ok();
    header.is_some_and(|header| header.compression() == Ok(Compression::Zstd))
}

/// Small batches are joined: each run of bytes costs the operating system more than copying them.
pub(super) fn put_records(out: &mut BytesMut, parts: &mut Vec<Bytes>, records: Vec<Bytes>) {
    const COPY_BYTES_MAX: usize = 4 << 10;
    for batch in records {
        if batch.len() <= COPY_BYTES_MAX {
            out.put_slice(&batch);
            continue;
        }
        if !out.is_empty() {
            parts.push(out.split().freeze());
        }
        parts.push(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of an entry, of these lengths.
    fn entry(lengths: &[usize]) -> Vec<ReadBatch> {
        let entry_bytes = lengths.iter().sum();
        let mut body = Bytes::from(vec![7; entry_bytes]);
        let slices = lengths.iter().map(|length| body.split_to(*length));
        let batch = |bytes| ReadBatch {
            bytes,
            append_time: 0,
            entry_bytes,
        };
        slices.map(batch).collect()
    }

    #[test]
    fn small_part_of_an_entry_does_not_keep_all_of_it() {
        let of_many = entry(&[1_000; 10]);
        let slices: Vec<_> = of_many.iter().map(|batch| batch.bytes.as_ptr()).collect();
        let copied = |taken: Vec<ReadBatch>| {
            let kept = unpinned(taken).into_iter();
            kept.map(|batch| !slices.contains(&batch.as_ptr()))
                .collect::<Vec<_>>()
        };
        assert_eq!(copied(of_many[..2].to_vec()), [true; 2]);
        assert_eq!(copied(of_many[..3].to_vec()), [false; 3]);
        assert_eq!(copied(of_many.clone()), [false; 10]);
        // The end of one entry, and the beginning of another.
        let other = entry(&[1_000, 9_000]);
        let joined = [&of_many[4..], &other[..1]].concat();
        let copies = copied(joined);
        assert_eq!(copies[..6], [false; 6]);
        let kept = unpinned(other[..1].to_vec());
        assert_ne!(kept[0].as_ptr(), other[0].bytes.as_ptr());
    }
}
