//! A node that writes down what it is asked, and answers when the test says so.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hulse_proto::bookie::{
    AddRequest, Address, BookieCalls, BookieError, Call as Later, EntryHead, FenceAnswer,
    FenceRequest, HeldLedger, HeldRun, Inventory, InventoryRequest, Origin, ReadClass, ReadRequest,
    RecoveryReadAnswer, RecoveryReadRequest, StoredEntry,
};
use hulse_proto::entry::{Entry, EntryClass, NewEntry, Totals};
use hulse_proto::id::{CellId, EntryId, FenceToken, Incarnation, LedgerId, NodeName, Offset};
use tokio::sync::watch;
use uuid::Uuid;

use crate::wire::Call;

/// Calls in the order of their arrival; each waits while `held`.
pub(crate) struct Node {
    pub(crate) calls: Mutex<Vec<Call>>,
    pub(crate) held: watch::Sender<bool>,
    /// What adds are answered.
    pub(crate) verdict: Mutex<Result<(), BookieError>>,
    /// What reads are answered.
    pub(crate) stored: Mutex<Vec<StoredEntry>>,
}

impl Node {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            calls: Mutex::default(),
            held: watch::Sender::new(false),
            verdict: Mutex::new(Ok(())),
            stored: Mutex::default(),
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// The numbers of the entries that were added, in order.
    pub(crate) fn added(&self) -> Vec<u64> {
        let calls = self.calls.lock().unwrap();
        let added = calls.iter().filter_map(|call| match call {
            Call::Add(add) => Some(add.entry.header().entry.0),
            _ => None,
        });
        added.collect()
    }

    /// Waits until so many calls have come.
    pub(crate) async fn saw(&self, count: usize) {
        while self.count() < count {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    fn later<T: Send + 'static>(&self, call: Call, answer: Result<T, BookieError>) -> Later<T> {
        self.calls.lock().unwrap().push(call);
        let mut held = self.held.subscribe();
        Box::pin(async move {
            // The node lives as long as its test.
            let _ = held.wait_for(|held| !held).await;
            answer
        })
    }
}

impl BookieCalls for Node {
    fn add(&self, request: AddRequest) -> Later<()> {
        let verdict = self.verdict.lock().unwrap().clone();
        self.later(Call::Add(request), verdict)
    }

    fn fence(&self, request: FenceRequest) -> Later<FenceAnswer> {
        let answer = FenceAnswer {
            token: request.token,
            confirmed_end: EntryId(3),
            held_end: EntryId(5),
        };
        self.later(Call::Fence(request), Ok(answer))
    }

    fn recovery_read(&self, request: RecoveryReadRequest) -> Later<RecoveryReadAnswer> {
        let found = self.stored.lock().unwrap().first().cloned();
        let answer = found.map_or(
            RecoveryReadAnswer::Negative {
                unsynced_limbo: true,
            },
            RecoveryReadAnswer::Positive,
        );
        self.later(Call::RecoveryRead(request), Ok(answer))
    }

    fn read(&self, request: ReadRequest) -> Later<Vec<StoredEntry>> {
        let found = self.stored.lock().unwrap().clone();
        self.later(Call::Read(request), Ok(found))
    }

    fn read_heads(&self, request: ReadRequest) -> Later<Vec<EntryHead>> {
        let stored = self.stored.lock().unwrap();
        let heads = stored.iter().map(|stored| EntryHead {
            header: *stored.entry.header(),
            envelope: stored.entry.envelope(),
        });
        let heads = heads.collect();
        drop(stored);
        self.later(Call::ReadHeads(request), Ok(heads))
    }

    fn delete(&self, to: Address) -> Later<()> {
        self.later(Call::Delete(to), Ok(()))
    }

    fn inventory(&self, request: InventoryRequest) -> Later<Inventory> {
        let run = HeldRun {
            first: request.first,
            end: request.end,
            digest: request.digests.then_some(u64::MAX),
        };
        let held = Inventory {
            ledgers: vec![HeldLedger {
                ledger: request.to.ledger,
                runs: vec![run],
            }],
            next: Some(request.ledgers_end),
        };
        self.later(Call::Inventory(request), Ok(held))
    }
}

pub(crate) fn bookie() -> NodeName {
    NodeName::new("bookie-1").unwrap()
}

pub(crate) fn address() -> Address {
    Address {
        cell: CellId(Uuid::from_u128(1)),
        incarnation: Incarnation(Uuid::from_u128(2)),
        ledger: LedgerId(7),
    }
}

/// An entry of these body parts behind an envelope of 9 bytes.
pub(crate) fn sealed(entry: u64, body: Vec<Bytes>) -> Entry {
    let new = NewEntry {
        class: EntryClass::Data,
        first_offset: Offset(entry),
        offset_span: 1,
        record_count: 1,
        envelope: Bytes::from_static(b"envelope."),
        body,
    };
    new.seal(LedgerId(7), EntryId(entry), Totals::default())
}

pub(crate) fn add(entry: u64, bytes: usize) -> AddRequest {
    AddRequest {
        to: address(),
        origin: Origin::Normal,
        confirmed_end: EntryId(entry),
        entry: sealed(entry, vec![Bytes::from(vec![entry as u8; bytes])]),
        timeout: std::time::Duration::from_secs(10),
    }
}

pub(crate) fn read(max_bytes: u32) -> ReadRequest {
    ReadRequest {
        to: address(),
        first: EntryId(0),
        end: EntryId(100_000),
        max_bytes,
        class: ReadClass::Tail,
    }
}

pub(crate) fn fence(token: u64) -> FenceRequest {
    FenceRequest {
        to: address(),
        token: FenceToken(token),
    }
}
