//! The formats of version 1, byte for byte: files that were not made by this code (`golden/make.py`). A change that these tests see
//! breaks every disk and every metadata store.

use bytes::{Bytes, BytesMut};
use prost::Message;
use uuid::Uuid;

use crate::entry::{
    BatchSummary, Entry, EntryClass, EntryError, EntryKind, Envelope, EnvelopeError, HEADER_BYTES,
    NewEntry, Totals, crc32c,
};
use crate::id::{
    EntryId, FenceToken, Incarnation, LedgerId, NodeName, Offset, OwnerEpoch, PartitionId,
    ProducerId, SegmentId, TopicId,
};
use crate::ledger::{
    ClosedTotals, Degraded, Fragment, LedgerKind, LedgerMetadata, LedgerMetadataError, LedgerState,
    Loss, LossKind, Member, Quorums,
};
use crate::tier::{AbortedRange, Attempt, LocalCopies, Segment, Settled, Tier};
use crate::wire::metadata::{self, subscribed_topic::Start};

macro_rules! golden {
    ($name:literal) => {
        Bytes::from_static(include_bytes!(concat!("../golden/v1/", $name)))
    };
}

const TIME: i64 = 1_700_000_000_000;

fn bytes_of(number: u8) -> Bytes {
    Bytes::from(vec![number; 16])
}

fn uuid(number: u8) -> Uuid {
    Uuid::from_bytes([number; 16])
}

fn batches() -> Vec<BatchSummary> {
    vec![
        BatchSummary {
            length: 70,
            span: 3,
            count: 2,
            producer_id: ProducerId(4711),
            producer_epoch: 3,
            attributes: 4,
            base_sequence: 12,
            max_timestamp: TIME + 5,
            hash_min: 100,
            hash_max: 60_000,
            expires_at: TIME + 9,
            base_timestamp: TIME - 5,
        },
        BatchSummary {
            length: u32::MAX,
            span: 1,
            count: 1,
            producer_id: ProducerId::NONE,
            producer_epoch: -1,
            attributes: 0,
            base_sequence: -1,
            max_timestamp: -1,
            hash_min: 0,
            hash_max: u16::MAX,
            expires_at: 0,
            base_timestamp: -1,
        },
    ]
}

fn envelope(kind: EntryKind, batches: &[BatchSummary]) -> Envelope {
    Envelope {
        kind,
        append_time: TIME,
        running_max_timestamp: TIME + 5,
        batches: batches.to_vec(),
    }
}

/// Class, first offset, span, count, envelope, body.
type Content = (EntryClass, u64, u32, u32, Envelope, Bytes);

fn check_entry(golden: Bytes, content: Content, (ledger, number): (u64, u64), before: Totals) {
    let (class, first, offset_span, record_count, envelope, body) = content;
    let entry = NewEntry {
        class,
        first_offset: Offset(first),
        offset_span,
        record_count,
        envelope: envelope.encode(),
        body: vec![body.clone()],
    }
    .seal(LedgerId(ledger), EntryId(number), before);
    let mut written = BytesMut::new();
    entry.encode_into(&mut written);
    assert_eq!(written.freeze(), golden);
    let found = Entry::decode(golden).unwrap();
    assert_eq!(found.header(), entry.header());
    assert_eq!(Envelope::decode(&found.envelope()).unwrap(), envelope);
    assert_eq!(found.body(), body);
}

#[test]
fn entries_of_version_1_are_read_and_written() {
    let data = envelope(EntryKind::Data, &batches());
    let body = Bytes::from_static(b"the bytes of two batches");
    let content = (EntryClass::Data, 50, 3, 2, data, body);
    check_entry(golden!("entry_data"), content, (9, 0), Totals::default());
    let control = envelope(EntryKind::Control, &batches()[1..]);
    let body = Bytes::from_static(b"a marker");
    let content = (EntryClass::Control, 53, 1, 1, control, body);
    check_entry(golden!("entry_control"), content, (9, 1), Totals::default());
    let meta = golden!("entry_meta");
    let body = meta.slice(meta.len() - 34..);
    let content = (
        EntryClass::Meta,
        0,
        0,
        0,
        envelope(EntryKind::Meta, &[]),
        body,
    );
    let before = Totals {
        bytes: 1000,
        digest: 0xfeed,
    };
    check_entry(meta, content, (10, 7), before);
}

#[test]
fn entry_of_another_version_is_refused_by_its_number() {
    for version in [0, 2, u8::MAX] {
        let mut bytes = golden!("entry_data").to_vec();
        bytes[0] = version;
        let crc = crc32c(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        let refused = Entry::decode(bytes.into()).unwrap_err();
        assert_eq!(refused, EntryError::Version(version));
        let words = format!("entry has format version {version}; this build reads version 1");
        assert_eq!(refused.to_string(), words);

        let mut bytes = envelope(EntryKind::Data, &batches()).encode().to_vec();
        bytes[0] = version;
        let end = bytes.len() - 4;
        let crc = crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&crc.to_le_bytes());
        let refused = Envelope::decode(&bytes);
        assert_eq!(refused, Err(EnvelopeError::Version(version)));
    }
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn fragment(first: u64, second: Member) -> Fragment {
    let member = |bookie: &str, number| Member {
        bookie: name(bookie),
        incarnation: Incarnation(uuid(number)),
    };
    Fragment {
        first: EntryId(first),
        ensemble: vec![member("bookie-1", 2), second, member("bookie-3", 1)],
    }
}

fn ledger() -> LedgerMetadata {
    let second = |bookie: &str, number| Member {
        bookie: name(bookie),
        incarnation: Incarnation(uuid(number)),
    };
    LedgerMetadata {
        kind: LedgerKind::Log,
        partition: PartitionId {
            topic: TopicId(uuid(4)),
            index: 7,
        },
        owner_epoch: OwnerEpoch(3),
        quorums: Quorums {
            ensemble: 3,
            write: 3,
            ack: 2,
        },
        state: LedgerState::Closed,
        recovery_token: FenceToken(5),
        fragments: vec![
            fragment(0, second("bookie-2", 3)),
            fragment(40, second("bookie-4", 4)),
        ],
        base_offset: Offset(1000),
        writer_nonce: [6; 16],
        recovery_nonce: [5; 16],
        repair_nonce: [0; 16],
        tier: None,
        intents: Vec::new(),
        closed: Some(ClosedTotals {
            end: EntryId(55),
            offset_span: 60,
            record_count: 58,
            bytes: 70_000,
            digest: 1 << 63,
        }),
        degraded: vec![Degraded {
            first: EntryId(10),
            end: EntryId(20),
            bookies: vec![name("bookie-2"), name("bookie-3")],
        }],
        loss: Some(Loss {
            kind: LossKind::TailLost,
            from: EntryId(54),
            at: TIME + 1,
        }),
        created_at: TIME,
    }
}

fn tiered_ledger() -> LedgerMetadata {
    let attempt = |number: u8| Attempt {
        id: SegmentId(uuid(number)),
        bucket: "main".to_owned(),
        object: format!("hulse/object-{number}"),
    };
    let tier = Tier {
        settled: Some(Settled {
            tier_after: TIME,
            aborted: vec![AbortedRange {
                first: Offset(1003),
                end: Offset(1010),
                producer: ProducerId(4711),
            }],
            aborted_ledger: Some(LedgerId(77)),
        }),
        attempt: Some(attempt(8)),
        garbage: vec![attempt(7)],
        segment: Some(Segment {
            attempt: attempt(9),
            object_bytes: 90_000,
            etag: "etag".to_owned(),
            first_byte: 10,
            index_at: 80_000,
            index_bytes: 500,
            index_crc: 0xfeed,
        }),
        local: LocalCopies::Dropping,
        nonce: [6; 16],
    };
    LedgerMetadata {
        tier: Some(Box::new(tier)),
        ..ledger()
    }
}

#[test]
fn tiered_ledger_of_version_1_is_read_and_written() {
    let golden = golden!("ledger_tiered");
    assert_eq!(LedgerMetadata::decode(&golden), Ok(tiered_ledger()));
    assert_eq!(tiered_ledger().encode(), golden);
}

#[test]
fn ledger_of_version_1_is_read_and_written_and_others_are_refused() {
    assert_eq!(LedgerMetadata::decode(&golden!("ledger")), Ok(ledger()));
    assert_eq!(ledger().encode(), golden!("ledger"));
    let newer = LedgerMetadata::decode(&golden!("ledger_version_2"));
    assert_eq!(newer, Err(LedgerMetadataError::Version(2)));
    // What earlier builds wrote: without the field.
    let older = LedgerMetadata::decode(&golden!("ledger").slice(2..));
    assert_eq!(older, Err(LedgerMetadataError::Version(0)));
}

fn check<M: Message + Default + PartialEq + std::fmt::Debug>(golden: Bytes, value: &M) {
    assert_eq!(M::decode(golden.clone()).as_ref(), Ok(value));
    assert_eq!(Bytes::from(value.encode_to_vec()), golden);
}

#[test]
fn metadata_of_nodes_of_version_1_are_read_and_written() {
    let cell = metadata::Cell {
        cell_uuid: bytes_of(1),
        ensemble: 3,
        write_quorum: 3,
        ack_quorum: 2,
        group_shards: 16,
        transaction_shards: 32,
        format_version: 1,
        created_at_ms: TIME,
    };
    check(golden!("cell"), &cell);
    let bookie = metadata::Bookie {
        incarnation: bytes_of(2),
        disk_uuid: bytes_of(3),
        state: metadata::bookie::State::Active as i32,
        boot_counter: 17,
        highest_log_file: 9,
        zone: "zone-a".to_owned(),
    };
    check(golden!("bookie"), &bookie);
    let node = metadata::Node {
        boot_uuid: bytes_of(6),
        endpoint: "http://10.0.0.1:7171".to_owned(),
        boot_counter: 17,
        clock_ms: TIME,
        mode: "readonly".to_owned(),
        http: String::new(),
        kafka: Vec::new(),
    };
    check(golden!("node"), &node);
    check(golden!("broker"), &metadata::Broker { node_id: 4 });
    check(golden!("counter"), &metadata::Counter { next: 4711 });
}

#[test]
fn metadata_of_topics_of_version_1_are_read_and_written() {
    let topic = metadata::Topic {
        topic_uuid: bytes_of(4),
        partitions: 12,
        state: metadata::topic::State::Active as i32,
        created_at_ms: TIME,
        log_append_time: true,
        retention_ms: Some(86_400_000),
        retention_bytes: Some(-1),
        ..metadata::Topic::default()
    };
    check(golden!("topic"), &topic);
    let topic = metadata::Topic {
        topic_uuid: bytes_of(4),
        partitions: 1,
        state: metadata::topic::State::Deleting as i32,
        created_at_ms: TIME,
        backlog_bytes: Some(1 << 30),
        backlog_ms: Some(-1),
        backlog_action: 2,
        ..metadata::Topic::default()
    };
    check(golden!("topic_with_quota"), &topic);
    let partition = metadata::Partition {
        owner_epoch: 3,
        owner: "broker-1".to_owned(),
        owner_boot: bytes_of(6),
    };
    check(golden!("partition"), &partition);
    let link = |ledger, base_offset, owner_epoch, gap_start| metadata::ChainLink {
        ledger,
        base_offset,
        owner_epoch,
        gap_start,
    };
    let chain = metadata::ChainChunk {
        links: vec![link(11, 1000, 3, None), link(12, 1100, 4, Some(1060))],
        log_start: 1005,
    };
    check(golden!("chain"), &chain);
    let chain = metadata::ChainChunk {
        links: vec![link(13, 0, 4, None)],
        log_start: 0,
    };
    check(golden!("chain_of_state"), &chain);
}

#[test]
fn metadata_of_subscriptions_of_version_1_are_read_and_written() {
    let topic = |number, partitions, start, deleting| metadata::SubscribedTopic {
        topic_uuid: bytes_of(number),
        partitions,
        deleting,
        start: Some(start),
        cursor_uuid: Bytes::new(),
    };
    let subscription = metadata::Subscription {
        subscription_uuid: bytes_of(5),
        r#type: 1,
        hold: true,
        state: metadata::subscription::State::Active as i32,
        created_at_ms: TIME,
        sharing: Bytes::new(),
        ttl_ms: 0,
        paused_until_ms: 0,
        topics: vec![
            topic(4, 3, Start::Earliest(true), false),
            topic(1, 1, Start::Latest(true), true),
            topic(3, 2, Start::Offset(0), false),
            topic(2, 2, Start::TimeMs(TIME), false),
        ],
    };
    check(golden!("subscription"), &subscription);
}
