//! Small valid values of every format, from which mutation starts.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hulse_proto::batch::{BatchBuilder, Compression, Header, ProducerStamp, RecordRef};
use hulse_proto::entry::{BatchSummary, Entry, EntryClass, EntryKind, Envelope, NewEntry, Totals};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{
    EntryId, FenceToken, Incarnation, LedgerId, NodeName, Offset, OwnerEpoch, PartitionId,
    ProducerId, TopicId,
};
use hulse_proto::ledger::{
    ClosedTotals, Degraded, Fragment, LedgerKind, LedgerMetadata, LedgerState, Loss, LossKind,
    Member, Quorums,
};
use hulse_proto::wire::{Message, metadata};

use crate::kafka;

/// Names and bytes.
pub type Seeds = Vec<(&'static str, Vec<u8>)>;

const UUID: [u8; 16] = [7; 16];
const TIME_MS: i64 = 1_700_000_000_000;

fn batch(compression: Compression, records: u32, producer: Option<ProducerStamp>) -> Bytes {
    let headers = [Some(&b"1"[..]), None, Some(b"")].map(|value| Header {
        key: Bytes::from_static(b"trace"),
        value: value.map(Bytes::from_static),
    });
    let mut builder = BatchBuilder::new(compression).expect("a supported codec");
    for number in 0..records {
        let text = format!("record {number} of some, some, some words");
        let record = RecordRef {
            timestamp: TIME_MS + i64::from(number) * 10 - i64::from(number % 3) * 500,
            key: (number % 3 != 1).then_some(&text.as_bytes()[..8]),
            value: (number % 4 != 3).then_some(text.as_bytes()),
            headers: &headers[..number as usize % 4],
        };
        builder.push(&record).expect("small records fit");
    }
    builder.build(producer)
}

/// Batches that a producer may send.
pub fn produced_batches() -> Seeds {
    let stamp = ProducerStamp {
        id: ProducerId(4711),
        epoch: 3,
        base_sequence: i32::MAX - 2,
    };
    vec![
        ("none", batch(Compression::None, 6, Some(stamp)).into()),
        ("lz4", batch(Compression::Lz4, 12, None).into()),
        ("zstd", batch(Compression::Zstd, 12, Some(stamp)).into()),
        ("one", batch(Compression::None, 1, None).into()),
    ]
}

/// Those, and a control batch as an owner writes it.
pub fn batches() -> Seeds {
    let mut control = batch(Compression::None, 1, None).to_vec();
    control[22] |= 0x20;
    let crc = hulse_proto::entry::crc32c(&control[21..]);
    control[17..21].copy_from_slice(&crc.to_be_bytes());
    let mut all = produced_batches();
    all.push(("control", control));
    // As other libraries made them: these codecs are only opened here.
    for (name, text) in [
        (
            "gzip",
            include_str!("../../proto/src/batch/golden/gzip.hex"),
        ),
        (
            "snappy",
            include_str!("../../proto/src/batch/golden/snappy.hex"),
        ),
    ] {
        all.push((name, kafka::unhex(text)));
    }
    all
}

fn envelope(kind: EntryKind, batches: &[Bytes]) -> Envelope {
    let describe = |batch: &Bytes| BatchSummary {
        length: batch.len() as u32,
        span: 6,
        count: 6,
        producer_id: ProducerId(4711),
        producer_epoch: 3,
        attributes: 0,
        base_sequence: 12,
        max_timestamp: TIME_MS,
        hash_min: 0,
        hash_max: u16::MAX,
        expires_at: 0,
        base_timestamp: TIME_MS,
    };
    Envelope {
        kind,
        append_time: TIME_MS,
        running_max_timestamp: i64::MIN,
        batches: batches.iter().map(describe).collect(),
    }
}

/// Envelopes with no, one and three batches.
pub fn envelopes() -> Seeds {
    let batch = batch(Compression::None, 1, None);
    let encode = |kind, batches: &[Bytes]| envelope(kind, batches).encode().to_vec();
    vec![
        ("meta", encode(EntryKind::Meta, &[])),
        (
            "control",
            encode(EntryKind::Control, std::slice::from_ref(&batch)),
        ),
        (
            "data",
            encode(EntryKind::Data, &[batch.clone(), batch.clone(), batch]),
        ),
    ]
}

fn entry(class: EntryClass, kind: EntryKind, body: Vec<Bytes>) -> Vec<u8> {
    let described = if class == EntryClass::Meta {
        &[]
    } else {
        &body[..]
    };
    let new = NewEntry {
        class,
        first_offset: Offset(6),
        offset_span: 6 * described.len() as u32,
        record_count: 6 * described.len() as u32,
        envelope: envelope(kind, described).encode(),
        body,
    };
    let entry: Entry = new.seal(
        LedgerId(9),
        EntryId(3),
        Totals {
            bytes: 1000,
            digest: 77,
        },
    );
    let mut bytes = BytesMut::new();
    entry.encode_into(&mut bytes);
    bytes.to_vec()
}

/// Entries of every class.
pub fn entries() -> Seeds {
    let batch = batch(Compression::None, 6, None);
    let meta = vec![Bytes::from_static(b"a snapshot chunk")];
    vec![
        (
            "data",
            entry(
                EntryClass::Data,
                EntryKind::Data,
                vec![batch.clone(), batch.clone()],
            ),
        ),
        (
            "control",
            entry(EntryClass::Control, EntryKind::Control, vec![batch]),
        ),
        ("meta", entry(EntryClass::Meta, EntryKind::Meta, meta)),
    ]
}

fn ledger(state: LedgerState) -> LedgerMetadata {
    let bookies =
        ["bookie-0", "bookie-1", "bookie-2"].map(|name| NodeName::new(name).expect("a name"));
    let ensemble: Vec<Member> = (0_u8..)
        .zip(&bookies)
        .map(|(number, bookie)| Member {
            bookie: bookie.clone(),
            incarnation: Incarnation::from_slice(&[number; 16]).expect("16 bytes"),
        })
        .collect();
    let fragment = |first| Fragment {
        first: EntryId(first),
        ensemble: ensemble.clone(),
    };
    let closed = state == LedgerState::Closed;
    LedgerMetadata {
        kind: LedgerKind::Log,
        partition: PartitionId {
            topic: TopicId::from_slice(&UUID).expect("16 bytes"),
            index: 5,
        },
        owner_epoch: OwnerEpoch(4),
        quorums: Quorums {
            ensemble: 3,
            write: 3,
            ack: 2,
        },
        state,
        recovery_token: FenceToken(2),
        fragments: vec![fragment(0), fragment(100)],
        base_offset: Offset(1000),
        writer_nonce: [1; 16],
        recovery_nonce: [2; 16],
        repair_nonce: [3; 16],
        tier: None,
        intents: Vec::new(),
        closed: closed.then_some(ClosedTotals {
            end: EntryId(200),
            offset_span: 5000,
            record_count: 5000,
            bytes: 1 << 20,
            digest: u64::MAX,
        }),
        degraded: vec![Degraded {
            first: EntryId(3),
            end: EntryId(9),
            bookies: bookies[..1].to_vec(),
        }],
        loss: closed.then_some(Loss {
            kind: LossKind::TailLost,
            from: EntryId(200),
            at: TIME_MS,
        }),
        created_at: TIME_MS,
    }
}

/// An open and a closed ledger.
pub fn ledgers() -> Seeds {
    vec![
        ("open", ledger(LedgerState::Open).encode().to_vec()),
        ("closed", ledger(LedgerState::Closed).encode().to_vec()),
        (
            "tiered",
            include_bytes!("../../proto/golden/v1/ledger_tiered").to_vec(),
        ),
    ]
}

/// `topic/…`.
pub fn topics() -> Seeds {
    let topic = metadata::Topic {
        topic_uuid: Bytes::from_static(&UUID),
        partitions: 8,
        state: metadata::topic::State::Active as i32,
        created_at_ms: TIME_MS,
        log_append_time: false,
        retention_ms: Some(604_800_000),
        retention_bytes: Some(-1),
        ..metadata::Topic::default()
    };
    vec![("active", topic.encode_to_vec())]
}

/// `part/…`.
pub fn partitions() -> Seeds {
    let partition = metadata::Partition {
        owner_epoch: 7,
        owner: "broker-0".to_owned(),
        owner_boot: Bytes::from_static(&UUID),
    };
    vec![("owned", partition.encode_to_vec())]
}

/// `chain/…`.
pub fn chains() -> Seeds {
    let links = (0..5).map(|number| metadata::ChainLink {
        ledger: number,
        base_offset: number * 1000,
        owner_epoch: number as u32,
        gap_start: (number == 3).then_some(2500),
    });
    let chain = metadata::ChainChunk {
        links: links.collect(),
        log_start: 1500,
    };
    vec![("five", chain.encode_to_vec()), ("empty", Vec::new())]
}

/// `cell`.
pub fn cells() -> Seeds {
    let cell = metadata::Cell {
        cell_uuid: Bytes::from_static(&UUID),
        ensemble: 3,
        write_quorum: 3,
        ack_quorum: 2,
        group_shards: 50,
        transaction_shards: 50,
        format_version: 0,
        created_at_ms: TIME_MS,
    };
    vec![("cluster", cell.encode_to_vec())]
}

/// `id/…`.
pub fn counters() -> Seeds {
    let numbers = [("low", 1), ("high", u64::MAX)];
    numbers
        .map(|(name, next)| (name, metadata::Counter { next }.encode_to_vec()))
        .to_vec()
}

/// A fault with and without everything. One fact only: several would be encoded in any order.
pub fn faults() -> Seeds {
    let plain = Fault::new(Reason::Internal, "");
    let full = Fault::new(Reason::OffsetOutOfRange, "offset 3 is below the log start")
        .with("log_start", 7)
        .retry_after(Duration::from_millis(20));
    vec![
        ("plain", plain.to_wire().encode_to_vec()),
        ("full", full.to_wire().encode_to_vec()),
    ]
}

/// Short and full names.
pub fn topic_names() -> Seeds {
    vec![
        ("short", b"greetings".to_vec()),
        ("full", b"public/default/a.b-c_9".to_vec()),
        ("long", "x".repeat(234).into_bytes()),
    ]
}
