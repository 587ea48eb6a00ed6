//! A bookie that confirms everything at once and keeps nothing: what is measured is the side of its callers, ledger client or audit.

use std::sync::Arc;

use bookie_client::{BookieDirectory, Candidate};
use bookie_metadata::{BoxFuture, MetadataError};
use futures::future::ready;
use hulse_proto::bookie::{
    AddRequest, Address, BookieCalls, BookieError, Call, EntryHead, FenceAnswer, FenceRequest,
    HeldLedger, HeldRun, INVENTORY_RUNS_MAX, Inventory, InventoryRequest, ReadRequest,
    RecoveryReadAnswer, RecoveryReadRequest, StoredEntry,
};
use hulse_proto::id::{EntryId, Incarnation, LedgerId, NodeName};
use hulse_proto::ledger::Member;
use hulse_proto::time::{TimestampMs, WallClock};
use uuid::Uuid;

/// Keeps nothing.
pub(crate) struct Sink;

impl BookieCalls for Sink {
    fn add(&self, _: AddRequest) -> Call<()> {
        Box::pin(ready(Ok(())))
    }

    fn fence(&self, _: FenceRequest) -> Call<FenceAnswer> {
        Box::pin(ready(Err(nothing())))
    }

    fn recovery_read(&self, _: RecoveryReadRequest) -> Call<RecoveryReadAnswer> {
        Box::pin(ready(Err(nothing())))
    }

    fn read(&self, _: ReadRequest) -> Call<Vec<StoredEntry>> {
        Box::pin(ready(Err(nothing())))
    }

    fn read_heads(&self, _: ReadRequest) -> Call<Vec<EntryHead>> {
        Box::pin(ready(Err(nothing())))
    }

    fn delete(&self, _: Address) -> Call<()> {
        Box::pin(ready(Ok(())))
    }

    // Everything, as whoever confirmed everything must.
    fn inventory(&self, request: InventoryRequest) -> Call<Inventory> {
        let (first, end) = (request.to.ledger.0, request.ledgers_end.0);
        let until = end.min(first.saturating_add(INVENTORY_RUNS_MAX as u64));
        let whole = HeldRun {
            first: EntryId(0),
            end: EntryId(u64::MAX),
            digest: None,
        };
        let ledgers = (first..until).map(|ledger| HeldLedger {
            ledger: LedgerId(ledger),
            runs: vec![whole],
        });
        Box::pin(ready(Ok(Inventory {
            ledgers: ledgers.collect(),
            next: (until < end).then_some(LedgerId(until)),
        })))
    }
}

fn nothing() -> BookieError {
    BookieError::NoAnswer {
        why: "nothing is kept here".to_owned(),
    }
}

/// The bookies of this process, all live and writable.
pub(crate) struct Bookies(pub(crate) Vec<(Member, Arc<dyn BookieCalls>)>);

impl BookieDirectory for Bookies {
    fn calls(&self, member: &Member) -> Option<Arc<dyn BookieCalls>> {
        let found = self.0.iter().find(|(known, _)| known == member);
        found.map(|(_, calls)| calls.clone())
    }

    fn candidates(&self) -> BoxFuture<'_, Result<Vec<Candidate>, MetadataError>> {
        let all = self.0.iter().map(|(member, _)| Candidate {
            member: member.clone(),
            live: true,
            writable: true,
            zone: String::new(),
        });
        Box::pin(ready(Ok(all.collect())))
    }
}

/// The member that a bookie of this number is; names as a stateful set gives them.
pub(crate) fn member(number: usize) -> Member {
    Member {
        bookie: NodeName::new(&format!("hulse-bookie-{number}")).expect("a short name is a name"),
        incarnation: Incarnation(Uuid::from_u128(
            0x5eed_0000_4000_8000_0000_0000_0000_0000 + number as u128,
        )),
    }
}

/// The operating system's date.
pub(crate) struct SystemClock;

impl WallClock for SystemClock {
    fn now_ms(&self) -> TimestampMs {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        since.as_millis() as TimestampMs
    }
}
