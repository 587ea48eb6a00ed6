//! Each message, there and back; and what is none.

use std::time::Duration;

use bytes::Bytes;
use hulse_proto::bookie::{
    AddRequest, Address, BookieError, EntryHead, FenceAnswer, FenceRequest, Origin, ReadClass,
    ReadRequest, RecoveryReadRequest, StoredEntry,
};
use hulse_proto::id::{CellId, EntryId, FenceToken, Incarnation, LedgerId};
use hulse_proto::wire::Message as _;
use proptest::prelude::*;
use uuid::Uuid;

use super::sealed;
use crate::wire::{
    Answer, Call, FIELDS_MAX, Refusal, Request, Run, check_fields, decode_answer, decode_entries,
    decode_fault, decode_heads, decode_request, encode_answer, encode_call, encode_entries,
    encode_fault, encode_heads, encode_open,
};

fn uuids() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

fn addresses() -> impl Strategy<Value = Address> {
    (uuids(), uuids(), any::<u64>()).prop_map(|(cell, incarnation, ledger)| Address {
        cell: CellId(cell),
        incarnation: Incarnation(incarnation),
        ledger: LedgerId(ledger),
    })
}

fn parts() -> impl Strategy<Value = Vec<Bytes>> {
    let part = proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
    prop_oneof![
        proptest::collection::vec(part, 0..20),
        // More than a message has pieces.
        (1_000..1_500_usize).prop_map(|count| vec![Bytes::from_static(b"x"); count]),
    ]
}

fn origins() -> impl Strategy<Value = Origin> {
    prop_oneof![
        Just(Origin::Normal),
        any::<u64>().prop_map(|token| Origin::Recovery {
            token: FenceToken(token)
        }),
        any::<u64>().prop_map(|bound| Origin::Copy {
            bound: EntryId(bound)
        }),
    ]
}

fn reads() -> impl Strategy<Value = ReadRequest> {
    let classes = prop_oneof![
        Just(ReadClass::Recovery),
        Just(ReadClass::Tail),
        Just(ReadClass::CatchUp)
    ];
    (addresses(), any::<(u64, u64, u32)>(), classes).prop_map(
        |(to, (first, end, max_bytes), class)| ReadRequest {
            to,
            first: EntryId(first),
            end: EntryId(end),
            max_bytes,
            class,
        },
    )
}

fn calls() -> impl Strategy<Value = Call> {
    let adds = (
        addresses(),
        origins(),
        any::<(u64, u64)>(),
        parts(),
        0..1_u64 << 40,
    );
    prop_oneof![
        adds.prop_map(
            |(to, origin, (confirmed, entry), body, ms)| Call::Add(AddRequest {
                to,
                origin,
                confirmed_end: EntryId(confirmed),
                entry: sealed(entry, body),
                timeout: Duration::from_millis(ms),
            })
        ),
        (addresses(), any::<u64>()).prop_map(|(to, token)| Call::Fence(FenceRequest {
            to,
            token: FenceToken(token)
        })),
        (addresses(), any::<(u64, u64)>()).prop_map(|(to, (token, entry))| Call::RecoveryRead(
            RecoveryReadRequest {
                to,
                token: FenceToken(token),
                entry: EntryId(entry)
            }
        )),
        reads().prop_map(Call::Read),
        reads().prop_map(Call::ReadHeads),
        addresses().prop_map(Call::Delete),
    ]
}

/// Compares by what their fields print, and an entry by its bytes.
fn same(one: &Call, other: &Call) -> bool {
    match (one, other) {
        (Call::Add(one), Call::Add(other)) => {
            let plain = |add: &AddRequest| (add.to, add.origin, add.confirmed_end, add.timeout);
            let bytes = |add: &AddRequest| {
                let mut bytes = Vec::new();
                add.entry.encode_into(&mut bytes);
                bytes
            };
            plain(one) == plain(other) && bytes(one) == bytes(other)
        }
        (one, other) => format!("{one:?}") == format!("{other:?}"),
    }
}

/// One of each, with fields that differ from their defaults.
fn faults() -> Vec<BookieError> {
    use BookieError as E;
    let ledger = LedgerId(5);
    let entry = EntryId(6);
    let why = || "for a reason".to_owned();
    vec![
        E::WrongCell {
            found: CellId(Uuid::from_u128(1)),
            asked: CellId(Uuid::from_u128(2)),
        },
        E::WrongIncarnation {
            found: Incarnation(Uuid::from_u128(3)),
            asked: Incarnation(Uuid::from_u128(4)),
        },
        E::Fenced {
            ledger,
            token: FenceToken(7),
        },
        E::StaleToken {
            ledger,
            token: FenceToken(8),
            asked: FenceToken(9),
        },
        E::Deleted { ledger },
        E::NotInEnsemble { ledger },
        E::Conflict { ledger, entry },
        E::ReadOnly { why: why() },
        E::Busy { queued_bytes: 10 },
        E::Invalid { why: why() },
        E::NotHere { ledger, entry },
        E::Damaged { ledger, entry },
        E::Limbo { ledger },
        E::Failed { why: why() },
        E::MetadataUnavailable,
        E::NoAnswer { why: why() },
    ]
}

#[test]
fn roundtrip_of_every_error() {
    for error in faults() {
        let message = encode_fault(&error).encode_to_vec();
        let message = hulse_proto::wire::bookie::Fault::decode(&message[..]).unwrap();
        assert_eq!(decode_fault(&message), Ok(error));
    }
    let long = BookieError::Failed {
        why: "ä".repeat(4_000),
    };
    let Ok(BookieError::Failed { why }) = decode_fault(&encode_fault(&long)) else {
        panic!("it stays a failure");
    };
    assert_eq!(why, "ä".repeat(512));
}

#[test]
fn error_of_a_later_version_claims_nothing() {
    let mut later = encode_fault(&BookieError::MetadataUnavailable);
    later.kind = 99;
    let decoded = decode_fault(&later).unwrap();
    assert!(matches!(decoded, BookieError::NoAnswer { .. }), "{decoded}");
    let mut bad = encode_fault(&faults()[0]);
    bad.found = Bytes::from_static(b"short");
    assert!(decode_fault(&bad).is_err());
}

#[test]
fn roundtrip_of_every_answer() {
    let answers = [
        (0, Answer::Opened),
        (0, Answer::Refused(Refusal::Version { found: 9 })),
        (
            0,
            Answer::Refused(Refusal::OtherBookie {
                found: "b".to_owned(),
            }),
        ),
        (1, Answer::Done),
        (
            2,
            Answer::Fenced(FenceAnswer {
                token: FenceToken(1),
                confirmed_end: EntryId(2),
                held_end: EntryId(3),
            }),
        ),
        (
            3,
            Answer::Negative {
                unsynced_limbo: true,
            },
        ),
        (
            u64::MAX,
            Answer::Run(Run {
                more: true,
                pieces: vec![Bytes::from_static(b"piece")],
            }),
        ),
        (5, Answer::Fault(BookieError::MetadataUnavailable)),
    ];
    for (number, answer) in answers {
        let shown = format!("{answer:?}");
        let message = encode_answer(number, answer).encode_to_vec();
        let message = hulse_proto::wire::bookie::Answer::decode(&message[..]).unwrap();
        let (found, answer) = decode_answer(message).unwrap();
        assert_eq!((found, format!("{answer:?}")), (number, shown));
    }
    assert!(decode_answer(encode_answer(0, Answer::Done)).is_err());
    assert!(decode_answer(encode_answer(1, Answer::Opened)).is_err());
}

#[test]
fn roundtrip_of_the_opening() {
    let Ok(Request::Open { bookie, .. }) = decode_request(encode_open("b-1")) else {
        panic!("it opens");
    };
    assert_eq!(bookie, "b-1");
}

#[test]
fn message_of_many_empty_fields_is_refused_before_it_is_decoded() {
    let piece = [0x7a, 0];
    assert_eq!(check_fields(&piece.repeat(FIELDS_MAX)), Ok(()));
    assert!(check_fields(&piece.repeat(FIELDS_MAX + 1)).is_err());
    // Cut, an unknown kind, a length beyond the end, a number that never ends.
    for bad in [
        &[0x7a][..],
        &[0x7b],
        &[0x7a, 5, 1],
        &[0x7a, 0xff, 0xff],
        &[0x80; 20],
        &[0x0d, 1],
    ] {
        assert!(check_fields(bad).is_err(), "{bad:?}");
    }
    assert_eq!(check_fields(&[]), Ok(()));
}

proptest! {
    #[test]
    fn roundtrip_of_calls(number in 1..u64::MAX, call in calls()) {
        let message = encode_call(number, &call).encode_to_vec();
        prop_assert_eq!(check_fields(&message), Ok(()));
        let message = hulse_proto::wire::bookie::Request::decode(&message[..]).unwrap();
        match decode_request(message) {
            Ok(Request::Call(found, decoded)) => {
                prop_assert_eq!(found, number);
                prop_assert!(same(&call, &decoded), "{:?} {:?}", call, decoded);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn roundtrip_of_runs(
        bodies in proptest::collection::vec((parts(), any::<u64>()), 0..30),
        max_bytes in any::<u32>(),
    ) {
        let stored: Vec<StoredEntry> = bodies
            .into_iter()
            .zip(0..)
            .map(|((body, confirmed), entry)| StoredEntry {
                entry: sealed(entry, body),
                confirmed_end: EntryId(confirmed),
            })
            .collect();
        let runs = encode_entries(&stored, max_bytes);
        let mut found = Vec::new();
        for (at, run) in runs.iter().enumerate() {
            prop_assert_eq!(run.more, at + 1 < runs.len());
            let message = encode_answer(1, Answer::Run(run.clone())).encode_to_vec();
            prop_assert_eq!(check_fields(&message), Ok(()));
            found.extend(decode_entries(run.pieces.clone()).unwrap());
        }
        prop_assert!(found.len() <= stored.len());
        prop_assert!(!found.is_empty() || stored.is_empty());
        for (found, stored) in found.iter().zip(&stored) {
            prop_assert_eq!(found.entry.header(), stored.entry.header());
            prop_assert_eq!(found.entry.verify(), Ok(()));
            prop_assert_eq!(found.confirmed_end, stored.confirmed_end);
        }
        let heads: Vec<EntryHead> = stored
            .iter()
            .map(|stored| EntryHead {
                header: *stored.entry.header(),
                envelope: stored.entry.envelope(),
            })
            .collect();
        let runs = encode_heads(&heads, u32::MAX);
        let found: Vec<EntryHead> = runs
            .into_iter()
            .flat_map(|run| decode_heads(run.pieces).unwrap())
            .collect();
        prop_assert_eq!(found.len(), heads.len());
        for (found, head) in found.iter().zip(&heads) {
            prop_assert_eq!((found.header, &found.envelope), (head.header, &head.envelope));
        }
    }

    #[test]
    fn decode_rejects_pieces_that_are_no_entries(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 1..5),
    ) {
        let pieces: Vec<Bytes> = pieces.into_iter().map(Bytes::from).collect();
        // A checksum of four bytes stands before everything.
        prop_assert!(decode_entries(pieces.clone()).is_err());
        prop_assert!(decode_heads(pieces).is_err());
    }

    #[test]
    fn decode_takes_any_bytes_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if check_fields(&bytes).is_err() {
            return Ok(());
        }
        if let Ok(request) = hulse_proto::wire::bookie::Request::decode(&bytes[..]) {
            let _ = decode_request(request);
        }
        if let Ok(answer) = hulse_proto::wire::bookie::Answer::decode(&bytes[..]) {
            let _ = decode_answer(answer);
        }
    }
}
