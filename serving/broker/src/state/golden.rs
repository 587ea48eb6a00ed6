//! The records of a partition's state in version 1, byte for byte: files that were not made by this code (`proto/golden/make.py`). A
//! change that these tests see breaks every state chain.

use bytes::Bytes;
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId, ProducerId, SubscriptionId, TopicId};
use serving_dispatch::{Letter, Mark, Why};
use uuid::Uuid;

use super::cursors::{Change, CursorDelta, Cursors, NewCursor, OffsetRange};
use super::fold::{PartitionState, StateFold};
use super::log_state::LogState;
use super::meta::MetaState;
use super::producers::{Known, Stored};
use super::record::{MetaRecord, MetaRecordKind, RecordError};

macro_rules! golden {
    ($name:literal) => {
        Bytes::from_static(include_bytes!(concat!("../../golden/v1/", $name)))
    };
}

const TIME: i64 = 1_700_000_000_000;
const EPOCH: OwnerEpoch = OwnerEpoch(3);
const PARTITION: PartitionId = PartitionId {
    topic: TopicId(Uuid::from_bytes([4; 16])),
    index: 7,
};
const SUBSCRIPTION: SubscriptionId = SubscriptionId(Uuid::from_bytes([5; 16]));

fn ranges() -> Vec<OffsetRange> {
    let range = |(first, end)| OffsetRange {
        first: Offset(first),
        end: Offset(end),
    };
    [(112, 113), (120, 130)].map(range).to_vec()
}

fn made() -> Change {
    Change::Made(NewCursor {
        name: "orders".into(),
        hold: true,
        base: Offset(100),
        at: TIME,
    })
}

fn acked() -> Change {
    Change::Acked {
        at: TIME + 1,
        to: Offset(110),
        ranges: ranges(),
    }
}

fn moved(keep_acked: bool) -> Change {
    Change::Moved {
        at: TIME + 2,
        base: Offset(105),
        state_epoch: 4,
        keep_acked,
    }
}

#[test]
fn delta_of_version_1_is_read_and_written() {
    let changes = [
        made(),
        acked(),
        moved(true),
        Change::Removed,
        Change::Hold(false),
    ];
    let delta = CursorDelta(changes.map(|change| (SUBSCRIPTION, change)).to_vec());
    let record = MetaRecord {
        partition: PARTITION,
        epoch: EPOCH,
        kind: MetaRecordKind::Delta {
            number: 10,
            bytes: Cursors::encode_delta(&delta),
        },
    };
    assert_eq!(record.encode(), golden!("state_delta"));
    assert_eq!(MetaRecord::decode(&golden!("state_delta")), Ok(record));
    let found = Cursors::decode_delta(&golden!("state_delta").slice(34..));
    assert_eq!(found, Ok(delta));
}

#[test]
fn records_that_a_quota_took_are_read_and_written() {
    let changes = [made(), Change::Evicted(77)];
    let delta = CursorDelta(changes.map(|change| (SUBSCRIPTION, change)).to_vec());
    let record = MetaRecord {
        partition: PARTITION,
        epoch: EPOCH,
        kind: MetaRecordKind::Delta {
            number: 11,
            bytes: Cursors::encode_delta(&delta),
        },
    };
    assert_eq!(record.encode(), golden!("state_delta_evicted"));
    let found = Cursors::decode_delta(&golden!("state_delta_evicted").slice(34..));
    assert_eq!(found, Ok(delta));
    let mut cursors = state().meta;
    cursors.apply_change(SUBSCRIPTION, &Change::Evicted(77));
    assert_eq!(cursors.encode(), golden!("state_cursors_evicted"));
    assert_eq!(
        Cursors::decode(&golden!("state_cursors_evicted")),
        Ok(cursors)
    );
}

#[test]
fn marks_of_records_that_came_back_are_read_and_written() {
    let mark = |failed, why, letter, retry_at| Mark {
        failed,
        why,
        letter,
        retry_at,
    };
    let marks = vec![
        (ranges()[0], mark(1, Why::Crashed, Letter::None, 0)),
        (
            ranges()[1],
            mark(5, Why::Rejected, Letter::Numbered(3), TIME),
        ),
        (
            OffsetRange::new(140, 141),
            mark(0, Why::LockExpired, Letter::Wanted, 0),
        ),
    ];
    let changes = [made(), Change::Marked(marks), Change::Letters(4)];
    let delta = CursorDelta(changes.map(|change| (SUBSCRIPTION, change)).to_vec());
    let record = MetaRecord {
        partition: PARTITION,
        epoch: EPOCH,
        kind: MetaRecordKind::Delta {
            number: 12,
            bytes: Cursors::encode_delta(&delta),
        },
    };
    assert_eq!(record.encode(), golden!("state_delta_marks"));
    let found = Cursors::decode_delta(&golden!("state_delta_marks").slice(34..));
    assert_eq!(found.as_ref(), Ok(&delta));
    let mut cursors = Cursors::default();
    cursors.apply(&delta);
    assert_eq!(cursors.encode(), golden!("state_cursors_marks"));
    assert_eq!(
        Cursors::decode(&golden!("state_cursors_marks")),
        Ok(cursors)
    );
}

fn state() -> PartitionState<Cursors> {
    let mut log = LogState {
        end: Offset(1003),
        append_time: TIME + 1,
        running_max_timestamp: TIME + 5,
        ..LogState::default()
    };
    let stored = |first, last, base, append_time| Stored {
        first,
        last,
        base: Offset(base),
        append_time,
    };
    let known = Known {
        epoch: 3,
        last_activity: TIME + 1,
        window: [stored(12, 13, 1000, TIME), stored(14, 14, 1002, TIME + 1)].into(),
    };
    log.producers.restore(ProducerId(4711), known);
    let mut meta = Cursors::default();
    let move_first = Change::Moved {
        at: TIME,
        base: Offset(100),
        state_epoch: 4,
        keep_acked: false,
    };
    for change in [made(), move_first, acked()] {
        meta.apply_change(SUBSCRIPTION, &change);
    }
    PartitionState {
        log,
        meta,
        state_applied: 9,
    }
}

#[test]
fn snapshot_of_version_1_is_read_and_written() {
    let chunks = [golden!("state_chunk_0"), golden!("state_chunk_1")];
    let written = state().snapshot_in_chunks(PARTITION, EPOCH, 40);
    let joined =
        |chunks: &[Bytes]| -> Bytes { chunks.iter().flat_map(|c| c.slice(50..)).collect() };
    let written: Vec<Bytes> = written.iter().map(MetaRecord::encode).collect();
    assert_eq!(joined(&written), joined(&chunks));
    assert_eq!(written[0].slice(..46), chunks[0].slice(..46));
    let mut fold = StateFold::<Cursors>::new(PARTITION);
    for chunk in &chunks {
        fold.fold(chunk).unwrap();
    }
    assert_eq!(fold.finish(), state());
}

#[test]
fn record_of_another_version_is_refused_by_its_number() {
    for version in [0, 2] {
        let mut bytes = golden!("state_delta").to_vec();
        bytes[0] = version;
        let refused = MetaRecord::decode(&bytes.into()).unwrap_err();
        assert_eq!(refused, RecordError::Version(version));
        let words = format!("record has format version {version}; this build reads version 1");
        assert_eq!(refused.to_string(), words);
    }
}
