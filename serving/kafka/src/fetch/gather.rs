//! Reads what the partitions of a fetch hold.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use futures::stream;
use hulse_proto::batch::{BatchHeader, Compression, empty_batch};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, OwnerEpoch};
use serving_broker::{Action, PartitionHandle, ReadChunk, Topic};
use tokio::time::Instant;

use super::spot::{Found, Spot, TopicKey};
use crate::error_code::{self, Code};
use crate::link::Link;
use crate::requests::epoch_number;
use crate::wire;

/// Partitions that are opened at the same time for one request.
const OPENINGS_AT_ONCE: usize = 16;
/// First version whose clients know zstd (KIP-110).
const ZSTD_FROM: i16 = 10;

/// A partition that is open, or the code of why it is not.
pub(super) type Open = Result<PartitionHandle, Code>;

/// Opens what the spots name, as far as that is done by `until`.
pub(super) async fn open_all(link: &Link, spots: &[Spot], until: Instant) -> Vec<Open> {
    let mut topics = HashMap::new();
    for spot in spots {
        let key = (spot.topic.name.as_str(), spot.topic.id);
        if let std::collections::hash_map::Entry::Vacant(slot) = topics.entry(key) {
            slot.insert(link.topic(key.0, key.1, until).await);
        }
    }
    let mut opening = Vec::with_capacity(spots.len());
    for spot in spots {
        let topic = &topics[&(spot.topic.name.as_str(), spot.topic.id)];
        opening.push(open(link, spot, topic, until));
    }
    stream::iter(opening)
        .buffered(OPENINGS_AT_ONCE)
        .collect()
        .await
}

async fn open(link: &Link, spot: &Spot, topic: &Result<Topic, Fault>, until: Instant) -> Open {
    let opened = match topic {
        Ok(topic) => link.open(topic, spot.index, Action::Consume, until).await,
        Err(fault) => Err(fault.clone()),
    };
    opened.map_err(|fault| code(link, &spot.topic, &fault))
}

fn code(link: &Link, topic: &TopicKey, fault: &Fault) -> Code {
    link.front().metrics().fault(fault.reason);
    let code = error_code::of_fetch(fault.reason);
    error_code::by_id(topic.id, fault.reason, code)
}

/// Bytes that may still be put into an answer.
pub(super) struct Budget {
    /// Of the answer.
    pub(super) left: usize,
    /// Nothing is in it yet: then the first batch goes in, however long (serving.md D2.7).
    pub(super) empty: bool,
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
    if let Err(found) = check_epoch(spot, open) {
        return found;
    }
    let offsets = open.offsets();
    let (begin, end) = (
        wire::offset(offsets.log_start),
        wire::offset(offsets.high_watermark),
    );
    let Some(offset) = u64::try_from(spot.offset)
        .ok()
        .filter(|_| (begin..=end).contains(&spot.offset))
    else {
        link.front().metrics().fault(Reason::OffsetOutOfRange);
        return Found {
            code: error_code::OFFSET_OUT_OF_RANGE,
            ..Found::empty(end, begin)
        };
    };
    let bytes = spot.bytes_max.min(budget.left);
    if spot.offset == end || (bytes == 0 && !budget.empty) {
        return Found {
            left_out: spot.offset < end,
            ..Found::empty(end, begin)
        };
    }
    match open.read(Offset(offset), bytes.max(1)).await {
        Ok(chunk) => {
            let epoch = open.leader_epoch();
            let found = take(chunk, epoch, version, (bytes, budget.empty));
            budget.left = budget.left.saturating_sub(found.bytes);
            budget.empty &= found.bytes == 0;
            Found {
                log_start: begin,
                left_out: found.bytes == 0,
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

/// What of a chunk goes into the answer: whole batches, the first one always where `(bytes, first)` says so.
fn take(chunk: ReadChunk, epoch: OwnerEpoch, version: i16, (bytes, first): (usize, bool)) -> Found {
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
    for batch in chunk.batches {
        let fits = found.bytes + batch.bytes.len() <= bytes;
        let allowed = fits || (first && found.bytes == 0);
        if !allowed {
            break;
        }
        if version < ZSTD_FROM && is_zstd(&batch.bytes) {
            if found.bytes == 0 {
                found.code = error_code::UNSUPPORTED_COMPRESSION;
            }
            break;
        }
        push(&mut found, batch.bytes);
    }
    found
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
