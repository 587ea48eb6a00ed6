//! Version 1 of every form on disk, byte by byte, from files that were not made by this code: a build that reads or writes it otherwise
//! loses what shards and partitions remember.

use std::sync::Arc;

use bytes::BytesMut;
use hulse_proto::id::{Offset, PartitionId, ProducerId, SubscriptionId, TopicId};
use serving_dispatch::OffsetRange;
use uuid::Uuid;

use crate::coordinator::{self, Participant, Parts, TransactionsShard};
use crate::group::{OffsetStages, StageChange, StagedOffset};
use crate::partition::{LogTransactions, StateChange, StateTransactions};
use crate::staging::{self, Decision, Item, ItemId, Kind, StagingState, Status};
use crate::{Marker, Producer, Version};

macro_rules! golden {
    ($name:literal) => {
        bytes(include_str!(concat!("../golden/", $name, "-v1.hex")))
    };
}

const TIME: i64 = 1_700_000_000_000;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2);
    let pairs = pairs.map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

fn part(index: u32) -> PartitionId {
    PartitionId {
        topic: TopicId(Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10)),
        index,
    }
}

fn producer(id: i64, epoch: i16) -> Producer {
    Producer {
        id: ProducerId(id),
        epoch,
    }
}

fn coordinator_delta() -> coordinator::Delta {
    use coordinator::Change;
    let both = Parts::DATA.with(Parts::ACKS);
    let participants = [
        (Participant::Partition(part(7)), both),
        (Participant::Groups(part(9)), Parts::default()),
    ];
    let began = Change::Began {
        at: TIME,
        producer: producer(4711, 3),
        previous: ProducerId::NONE,
        last_epoch: 2,
        timeout_ms: 60_000,
    };
    let added = Change::Added {
        at: TIME + 1,
        version: Version::Tv2,
        participants: participants.into(),
    };
    let decided = Change::Decided {
        at: TIME + 2,
        commit: true,
        version: Version::Tv2,
        producer: producer(4711, 4),
        next: ProducerId::NONE,
        last_epoch: 3,
    };
    let changes = [
        ("orders", began),
        ("orders", added),
        ("orders", decided),
        ("other", Change::Completed { at: TIME + 3 }),
        ("gone", Change::Gone),
    ];
    let changes = changes.map(|(id, change)| (Arc::from(id), change));
    coordinator::Delta(changes.into())
}

#[test]
fn coordinator_of_version_1_is_read_and_written_as_ever() {
    let delta = coordinator_delta();
    assert_eq!(delta.encode(), golden!("coordinator-delta"));
    let read = coordinator::Delta::decode(&golden!("coordinator-delta"));
    assert_eq!(read, Ok(delta.clone()));
    let mut state = TransactionsShard::default();
    state.apply(&delta);
    assert_eq!(state.encode(), golden!("coordinator-snapshot"));
    let read = TransactionsShard::decode(&golden!("coordinator-snapshot"));
    assert_eq!(read, Ok(state));
}

#[test]
fn log_of_version_1_is_read_and_written_as_ever() {
    let bytes = golden!("partition-log");
    let read = LogTransactions::decode_from(&mut &bytes[..]).unwrap();
    assert_eq!((read.end, read.stable()), (Offset(9), Offset(5)));
    assert_eq!(read.get(ProducerId(2)).unwrap().epoch, 4);
    assert_eq!(read.aborted().overlapping(Offset(8), Offset(9)).len(), 1);
    assert_eq!(read.encode(), bytes);
}

fn stages() -> Vec<crate::partition::Stage> {
    let ranges = vec![OffsetRange::new(10, 12), OffsetRange::new(15, 16)];
    vec![(SubscriptionId(Uuid::from_bytes([9; 16])), ranges)]
}

#[test]
fn state_of_version_1_is_read_and_written_as_ever() {
    let marker = Marker {
        producer: producer(1, 4),
        commit: true,
        coordinator_epoch: 3,
        version: Version::Tv2,
        serial: 2,
    };
    let settled = StateChange::Settled { at: TIME, marker };
    let staged = StateChange::Staged {
        at: TIME + 1,
        producer: producer(1, 5),
        stages: stages(),
    };
    let mut state = StateTransactions::default();
    for (change, bytes) in [
        (settled, golden!("partition-change-settled")),
        (staged, golden!("partition-change-staged")),
    ] {
        let mut out = BytesMut::new();
        change.encode_into(&mut out);
        assert_eq!(out, bytes);
        assert_eq!(
            StateChange::decode_from(&mut &bytes[..]),
            Ok(change.clone())
        );
        state.apply(&change);
    }
    let voided = golden!("partition-change-voided");
    let voided = StateChange::decode_from(&mut &voided[..]);
    assert_eq!(voided, Ok(StateChange::Voided(stages()[0].0)));
    assert_eq!(state.encode(), golden!("partition-state"));
    assert_eq!(
        StateTransactions::decode(&golden!("partition-state")),
        Ok(state)
    );
}

#[test]
fn stages_of_version_1_are_read_and_written_as_ever() {
    let offset = |to, leader_epoch, metadata: Option<&str>| StagedOffset {
        offset: Offset(to),
        leader_epoch,
        metadata: metadata.map(Arc::from),
        at: TIME,
    };
    let offsets = vec![
        (part(1), offset(70, 3, Some("mine"))),
        (part(2), offset(80, -1, None)),
    ];
    let group: Arc<str> = "g".into();
    let staged = StageChange::Staged {
        at: TIME,
        producer: producer(1, 5),
        group: group.clone(),
        offsets,
    };
    let overtaken = StageChange::Overtaken {
        group,
        partition: part(1),
    };
    let mut stages = OffsetStages::default();
    stages.apply(&StageChange::TopicGone(TopicId(Uuid::nil())));
    for (change, bytes) in [
        (staged, golden!("group-change-staged")),
        (overtaken, golden!("group-change-overtaken")),
    ] {
        let mut out = BytesMut::new();
        change.encode_into(&mut out);
        assert_eq!(out, bytes);
        assert_eq!(
            StageChange::decode_from(&mut &bytes[..]),
            Ok(change.clone())
        );
        stages.apply(&change);
    }
    assert_eq!(stages.encode(), golden!("group-stages"));
    assert_eq!(OffsetStages::decode(&golden!("group-stages")), Ok(stages));
}

fn staging_delta() -> staging::Delta {
    use staging::Change;
    let id = |first, nonce| ItemId {
        first: Offset(first),
        nonce,
    };
    let (half, scheduled) = (id(5, 99), id(6, 98));
    let item = |kind, target, place, due| Item {
        kind,
        target,
        place: Offset(place),
        made_at: TIME,
        due,
        checks: 0,
        status: Status::Waiting,
    };
    let kind = Kind::Half {
        group: "carts".into(),
        checks_max: 15,
    };
    let decided = |id, decision| Change::Decided {
        id,
        decision,
        forget_at: TIME + 86_400_000,
    };
    let (sequence, checks, gone) = (0, 1, TopicId(Uuid::from_bytes([3; 16])));
    staging::Delta(vec![
        Change::Publisher(producer(77, 0)),
        Change::Added(half, item(kind, part(1), 5, TIME + 6_000)),
        Change::Added(scheduled, item(Kind::Scheduled, part(2), 6, TIME + 90_000)),
        Change::Checked {
            id: half,
            checks,
            due: TIME + 36_000,
        },
        decided(half, Decision::Commit),
        Change::Publishing { id: half, sequence },
        Change::Renewed {
            id: scheduled,
            place: Offset(12),
        },
        decided(scheduled, Decision::Rollback),
        Change::Done {
            id: id(7, 1),
            forget_at: TIME,
        },
        Change::TargetsGone([gone].into()),
        Change::Resumed {
            id: id(7, 1),
            due: TIME,
        },
        Change::Forgotten(id(8, 1)),
    ])
}

#[test]
fn staging_store_of_version_1_is_read_and_written_as_ever() {
    let delta = staging_delta();
    assert_eq!(delta.encode(), golden!("staging-delta"));
    let read = staging::Delta::decode(&golden!("staging-delta"));
    assert_eq!(read, Ok(delta.clone()));
    let mut state = StagingState::default();
    state.apply(&delta);
    assert_eq!(state.encode(), golden!("staging-snapshot"));
    assert_eq!(
        StagingState::decode(&golden!("staging-snapshot")),
        Ok(state)
    );
}
