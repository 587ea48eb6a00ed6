//! A closed, settled ledger out of nothing.

use bytes::Bytes;
use hulse_proto::entry::{BatchSummary, Entry, EntryClass, EntryKind, Envelope, NewEntry, Totals};
use hulse_proto::id::{
    EntryId, FenceToken, LedgerId, Offset, OwnerEpoch, PartitionId, ProducerId, TopicId,
};
use hulse_proto::ledger::{
    ClosedTotals, Fragment, LedgerKind, LedgerMetadata, LedgerState, Quorums,
};
use hulse_proto::tier::{Settled, Tier};
use uuid::Uuid;

/// Offsets of each entry.
const SPAN: u32 = 3;
/// Records of each entry: as after a compaction, there is a gap.
const RECORDS: u32 = 2;

/// Metadata and entries that belong together.
#[derive(Debug, Clone)]
pub struct ClosedLedger {
    /// Its number.
    pub ledger: LedgerId,
    /// Closed, and settled by its owner.
    pub metadata: LedgerMetadata,
    /// All of them.
    pub entries: Vec<Entry>,
}

/// A ledger of partition 7 of one topic, with an entry for each of these lengths of a body. The record timestamps of entry `n` are
/// `1000 * n` and `1000 * n + 5`.
pub fn closed_ledger(ledger: LedgerId, base: Offset, bodies: &[usize]) -> ClosedLedger {
    let (mut totals, mut next) = (Totals::default(), base.0);
    let entries = bodies.iter().zip(0..).map(|(bytes, number)| {
        let entry = new_entry(*bytes, number, Offset(next)).seal(ledger, EntryId(number), totals);
        totals = entry.header().totals();
        next = entry.header().end_offset().0;
        entry
    });
    let entries: Vec<Entry> = entries.collect();
    let count = entries.len() as u64;
    let closed = ClosedTotals {
        end: EntryId(count),
        offset_span: next - base.0,
        record_count: count * u64::from(RECORDS),
        bytes: totals.bytes,
        digest: totals.digest,
    };
    ClosedLedger {
        ledger,
        metadata: metadata(base, closed),
        entries,
    }
}

fn new_entry(bytes: usize, number: u64, first_offset: Offset) -> NewEntry {
    let body: Vec<u8> = (0..bytes)
        .map(|at| (at as u64 * 31 + number) as u8)
        .collect();
    let time = number as i64 * 1000;
    let envelope = Envelope {
        kind: EntryKind::Data,
        append_time: time,
        running_max_timestamp: time + 5,
        batches: vec![BatchSummary {
            length: bytes as u32,
            span: SPAN,
            count: RECORDS,
            producer_id: ProducerId::NONE,
            producer_epoch: -1,
            attributes: 0,
            base_sequence: -1,
            max_timestamp: time + 5,
            hash_min: 0,
            hash_max: u16::MAX,
            expires_at: 0,
            base_timestamp: time,
        }],
    };
    NewEntry {
        class: EntryClass::Data,
        first_offset,
        offset_span: SPAN,
        record_count: RECORDS,
        envelope: envelope.encode(),
        body: vec![Bytes::from(body)],
    }
}

fn metadata(base_offset: Offset, closed: ClosedTotals) -> LedgerMetadata {
    LedgerMetadata {
        kind: LedgerKind::Log,
        partition: PartitionId {
            topic: TopicId(Uuid::from_u128(4)),
            index: 7,
        },
        owner_epoch: OwnerEpoch(1),
        quorums: Quorums {
            ensemble: 1,
            write: 1,
            ack: 1,
        },
        state: LedgerState::Closed,
        recovery_token: FenceToken(0),
        fragments: vec![Fragment {
            first: EntryId(0),
            ensemble: Vec::new(),
        }],
        base_offset,
        writer_nonce: [0; 16],
        recovery_nonce: [0; 16],
        closed: Some(closed),
        degraded: Vec::new(),
        loss: None,
        created_at: 0,
        intents: Vec::new(),
        repair_nonce: [0; 16],
        tier: Some(Box::new(Tier {
            settled: Some(Settled::default()),
            ..Tier::default()
        })),
    }
}
