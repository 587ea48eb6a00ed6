//! Version 1 of the form on disk, byte by byte: a build that reads or writes it otherwise loses what shards remember.

use std::sync::Arc;

use hulse_proto::id::{Offset, PartitionId, TopicId};
use uuid::Uuid;

use super::*;
use crate::request::{Client, Protocol};

const DELTA: &str = include_str!("../../golden/delta-v1.hex");
const SNAPSHOT: &str = include_str!("../../golden/snapshot-v1.hex");

fn part(index: u32) -> PartitionId {
    PartitionId {
        topic: TopicId(Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10)),
        index,
    }
}

fn protocols() -> Vec<Protocol> {
    vec![Protocol {
        name: "range".into(),
        metadata: bytes::Bytes::from_static(&[0, 1, 0xff]),
    }]
}

fn client() -> Client {
    Client {
        id: "app".into(),
        host: "10.0.0.1".into(),
    }
}

fn classic() -> Change {
    let member = ClassicMember {
        instance: Some("i".into()),
        client: client(),
        session_ms: 10_000,
        rebalance_ms: 60_000,
        protocols: protocols(),
        assignment: bytes::Bytes::from_static(b"parts"),
    };
    let group = ClassicGroup {
        generation: 7,
        protocol_type: "consumer".into(),
        protocol: "range".into(),
        leader: "m1".into(),
        members: [("m1".into(), member)].into(),
    };
    Change::Classic { at: -1, group }
}

fn facts() -> MemberFacts {
    MemberFacts {
        instance: None,
        rack: Some("r".into()),
        client: client(),
        rebalance_ms: 300_000,
        topics: ["orders".into(), "bills".into()].into(),
        pattern: Some("o.*".into()),
        assignor: Some("uniform".into()),
        classic: Some(ClassicFacts {
            session_ms: 45_000,
            protocols: protocols(),
        }),
    }
}

fn current() -> Current {
    Current {
        epoch: 3,
        previous_epoch: 2,
        state: MemberState::Unrevoked,
        assigned: [(part(0), 2), (part(1), 3)].into(),
        revoking: [part(2)].into(),
    }
}

fn committed(index: u32, metadata: Option<&str>) -> Change {
    Change::Committed {
        partition: part(index),
        offset: CommittedOffset {
            offset: Offset(1 << 40),
            leader_epoch: 9,
            metadata: metadata.map(Arc::from),
            at: 1_700_000_000_000,
        },
    }
}

/// Every kind of change, and every field that may be missing, once there and once not.
fn delta() -> Delta {
    let member = |name: &str, facts| Change::Member {
        member: name.into(),
        facts,
    };
    let epoch = Change::Epoch {
        at: 1_700_000_000_001,
        epoch: 3,
        assignor: "uniform".into(),
        topics: [(part(0).topic, 3)].into(),
    };
    let target = Change::Target {
        epoch: 3,
        members: [("a".into(), [part(0)].into())].into(),
    };
    let has = Change::Current {
        member: "a".into(),
        current: current(),
    };
    let gone = Change::MemberGone {
        at: 5,
        member: "b".into(),
    };
    let changes = [
        ("old", classic()),
        ("new", epoch),
        ("new", member("a", facts())),
        ("new", member("b", MemberFacts::default())),
        ("new", target),
        ("new", has),
        ("new", gone),
        ("old", committed(4, Some("mine"))),
        ("solo", committed(5, None)),
        ("old", Change::OffsetGone { partition: part(6) }),
        ("gone", Change::Gone),
    ];
    Delta(
        changes
            .map(|(name, change)| (Arc::from(name), change))
            .into(),
    )
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| {
        let digits = line.iter().map(|byte| format!("{byte:02x}"));
        digits.collect::<String>() + "\n"
    });
    lines.collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2);
    let pairs = pairs.map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

#[test]
fn delta_of_version_1_is_read_and_written_as_ever() {
    assert_eq!(hex(&delta().encode()), DELTA);
    assert_eq!(Delta::decode(&bytes(DELTA)).unwrap(), delta());
}

#[test]
fn snapshot_of_version_1_is_read_and_written_as_ever() {
    let mut state = ShardState::default();
    state.apply(&delta());
    assert_eq!(hex(&state.encode()), SNAPSHOT);
    assert_eq!(ShardState::decode(&bytes(SNAPSHOT)).unwrap(), state);
}
