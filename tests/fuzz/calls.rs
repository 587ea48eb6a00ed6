//! Calls of a bookie and their answers, as they come over the wire.

use bookie_transport::wire::{
    Answer, Call, Request, Run, check_fields, decode_answer, decode_entries, decode_heads,
    decode_request, encode_answer, encode_call, encode_entries, encode_fault, encode_heads,
    encode_open,
};
use bytes::Bytes;
use hulse_proto::bookie::{
    AddRequest, Address, BookieError, EntryHead, FenceAnswer, FenceRequest, HeldLedger, HeldRun,
    Inventory, InventoryRequest, Origin, ReadClass, ReadRequest, RecoveryReadRequest, StoredEntry,
};
use hulse_proto::entry::Entry;
use hulse_proto::id::{CellId, EntryId, FenceToken, Incarnation, LedgerId};
use hulse_proto::wire::{Message, bookie as wire};
use uuid::Uuid;

use crate::seeds::{self, Seeds};

/// What is accepted is the same after a way there and back.
pub fn request(input: &[u8]) -> bool {
    if check_fields(input).is_err() {
        return false;
    }
    let Ok(message) = wire::Request::decode(Bytes::copy_from_slice(input)) else {
        return false;
    };
    match decode_request(message) {
        Ok(Request::Call(number, call)) => {
            let again = decode_request(encode_call(number, &call));
            let Ok(Request::Call(same, again)) = again else {
                panic!("{call:?} is not decoded again");
            };
            assert_eq!((number, call.to()), (same, again.to()));
            true
        }
        Ok(Request::Open { .. }) => true,
        Ok(Request::Invalid(..)) | Err(_) => false,
    }
}

/// As [`request`]. Runs are read as both of what they may be.
pub fn answer(input: &[u8]) -> bool {
    if check_fields(input).is_err() {
        return false;
    }
    let Ok(message) = wire::Answer::decode(Bytes::copy_from_slice(input)) else {
        return false;
    };
    let Ok((number, answer)) = decode_answer(message) else {
        return false;
    };
    if let Answer::Run(run) = &answer {
        let entries = decode_entries(run.pieces.clone());
        let heads = decode_heads(run.pieces.clone());
        for stored in entries.iter().flatten() {
            let parts: usize = stored.entry.payload_parts().iter().map(Bytes::len).sum();
            assert_eq!(parts, stored.entry.header().payload_len as usize);
            let _ = (stored.entry.verify(), stored.entry.envelope());
        }
        for head in heads.iter().flatten() {
            assert_eq!(head.envelope.len(), head.header.envelope_len as usize);
        }
        return entries.is_ok() || heads.is_ok();
    }
    let (same, again) = decode_answer(encode_answer(number, answer.clone())).expect("it is ours");
    assert_eq!(
        (number, format!("{answer:?}")),
        (same, format!("{again:?}"))
    );
    true
}

fn address() -> Address {
    Address {
        cell: CellId(Uuid::from_u128(1)),
        incarnation: Incarnation(Uuid::from_u128(2)),
        ledger: LedgerId(7),
    }
}

fn entries() -> Vec<Entry> {
    let all = seeds::entries().into_iter();
    let entries = all.map(|(_, bytes)| Entry::decode(bytes.into()));
    entries
        .map(|entry| entry.expect("seeds are entries"))
        .collect()
}

/// A call of each kind.
pub fn requests() -> Seeds {
    let to = address();
    let add = |origin, entry| {
        Call::Add(AddRequest {
            to,
            origin,
            confirmed_end: EntryId(5),
            entry,
            timeout: std::time::Duration::from_secs(3),
        })
    };
    let token = FenceToken(4);
    let read = ReadRequest {
        to,
        first: EntryId(1),
        end: EntryId(9),
        max_bytes: 4096,
        class: ReadClass::CatchUp,
    };
    let entry = entries().swap_remove(0);
    let calls = [
        ("add", add(Origin::Normal, entry.clone())),
        ("add-recovery", add(Origin::Recovery { token }, entry)),
        ("fence", Call::Fence(FenceRequest { to, token })),
        (
            "recovery-read",
            Call::RecoveryRead(RecoveryReadRequest {
                to,
                token,
                entry: EntryId(3),
            }),
        ),
        ("read", Call::Read(read)),
        ("read-heads", Call::ReadHeads(read)),
        ("delete", Call::Delete(to)),
        (
            "inventory",
            Call::Inventory(InventoryRequest {
                to,
                ledgers_end: LedgerId(9),
                first: EntryId(0),
                end: EntryId(u64::MAX),
                digests: true,
            }),
        ),
    ];
    let mut seeds: Seeds = vec![("open", encode_open("bookie-1").encode_to_vec())];
    let calls = calls.into_iter();
    seeds.extend(calls.map(|(name, call)| (name, encode_call(300, &call).encode_to_vec())));
    seeds
}

fn held() -> Inventory {
    let run = |first, digest| HeldRun {
        first: EntryId(first),
        end: EntryId(first + 5),
        digest,
    };
    let ledgers = [
        (7, vec![run(0, Some(3)), run(9, None)]),
        (8, vec![run(2, None)]),
    ];
    let ledgers = ledgers.map(|(ledger, runs)| HeldLedger {
        ledger: LedgerId(ledger),
        runs,
    });
    Inventory {
        ledgers: ledgers.to_vec(),
        next: Some(LedgerId(9)),
    }
}

/// An answer of each kind.
pub fn answers() -> Seeds {
    let stored: Vec<StoredEntry> = entries()
        .into_iter()
        .map(|entry| StoredEntry {
            entry,
            confirmed_end: EntryId(2),
        })
        .collect();
    let heads: Vec<EntryHead> = stored
        .iter()
        .map(|stored| EntryHead {
            header: *stored.entry.header(),
            envelope: stored.entry.envelope(),
        })
        .collect();
    let one = |runs: Vec<Run>| Answer::Run(runs.into_iter().next().expect("there is a run"));
    let error = BookieError::WrongIncarnation {
        found: Incarnation(Uuid::from_u128(3)),
        asked: Incarnation(Uuid::from_u128(4)),
    };
    assert!(encode_fault(&error).found.len() == 16);
    let fenced = FenceAnswer {
        token: FenceToken(1),
        confirmed_end: EntryId(2),
        held_end: EntryId(3),
    };
    let answers = [
        ("done", Answer::Done),
        ("fenced", Answer::Fenced(fenced)),
        (
            "negative",
            Answer::Negative {
                unsynced_limbo: true,
            },
        ),
        ("entries", one(encode_entries(&stored, u32::MAX))),
        ("heads", one(encode_heads(&heads, u32::MAX))),
        ("held", Answer::Held(held())),
        ("fault", Answer::Fault(error)),
    ];
    let answers = answers.into_iter();
    let encoded = answers.map(|(name, answer)| (name, encode_answer(300, answer).encode_to_vec()));
    encoded.collect()
}
