//! [`RemoteBookie`]: the methods of `BookieCalls`, each a call of one of two lanes.
//!
//! What changes a ledger is in one lane, in one order: adds, fences, recovery reads, deletions. Plain reads have a connection of their
//! own, so that their bulk does not stand before acks (storage.md K7). A read sees what was answered before it was made all the same:
//! the node had done it by then.

use std::sync::Arc;

use hulse_proto::bookie::{
    AddRequest, Address, BookieCalls, BookieError, Call as Later, EntryHead, FenceAnswer,
    FenceRequest, Inventory, InventoryRequest, ReadRequest, RecoveryReadAnswer,
    RecoveryReadRequest, StoredEntry,
};
use hulse_proto::id::NodeName;
use tokio::sync::oneshot;

use super::config::RemoteConfig;
use super::connect::Connect;
use super::lane::{Lane, Room};
use super::link::{self, Peer};
use super::reply::{Collected, Reply, waiting};
use crate::wire::Call;

/// What a call without a payload counts.
const SMALL_BYTES: usize = 128;

/// A bookie at an address. Nothing is dialled before the first call. Dropping the last handle gives the connections up once every call
/// that is out has its answer.
pub struct RemoteBookie {
    lanes: Arc<Lanes>,
}

struct Lanes {
    ordered: Arc<Lane>,
    reads: Arc<Lane>,
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.ordered.closed.cancel();
        self.reads.closed.cancel();
    }
}

impl std::fmt::Debug for RemoteBookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteBookie").finish_non_exhaustive()
    }
}

impl RemoteBookie {
    /// The bookie `name` at `address` (`host:port`). Needs a tokio runtime.
    pub fn new(
        name: NodeName,
        address: &str,
        config: RemoteConfig,
        connect: Arc<dyn Connect>,
    ) -> Self {
        let peer = Peer {
            name,
            address: address.into(),
            connect,
        };
        let ordered = Room {
            admitted: config.add_bytes_max,
            sent: usize::MAX,
        };
        let reads = Room {
            admitted: usize::MAX,
            sent: config.read_bytes_max,
        };
        let lane = |room| {
            let lane = Arc::new(Lane::new(config, room));
            tokio::spawn(link::run(Arc::clone(&lane), peer.clone()));
            lane
        };
        let (ordered, reads) = (lane(ordered), lane(reads));
        Self {
            lanes: Arc::new(Lanes { ordered, reads }),
        }
    }

    fn make<T: Send + 'static>(
        &self,
        lane: &Lane,
        (call, bytes): (Call, usize),
        reply: impl FnOnce(oneshot::Sender<Result<T, BookieError>>) -> Reply,
    ) -> Later<T> {
        let (sender, receiver) = oneshot::channel();
        if let Err((reply, error)) = lane.submit(call, bytes, reply(sender)) {
            reply.fail(error);
        }
        waiting(receiver, Arc::clone(&self.lanes))
    }

    fn ordered<T: Send + 'static>(
        &self,
        call: Call,
        reply: impl FnOnce(oneshot::Sender<Result<T, BookieError>>) -> Reply,
    ) -> Later<T> {
        let bytes = match &call {
            Call::Add(add) => add.entry.header().entry_len() + SMALL_BYTES,
            _ => SMALL_BYTES,
        };
        self.make(&self.lanes.ordered, (call, bytes), reply)
    }

    /// A read, and what its answer may take.
    fn clipped(&self, mut request: ReadRequest) -> ReadRequest {
        let most = self.lanes.reads.config.one_read_bytes_max;
        request.max_bytes = request.max_bytes.min(most);
        request
    }
}

impl BookieCalls for RemoteBookie {
    fn add(&self, request: AddRequest) -> Later<()> {
        self.ordered(Call::Add(request), Reply::Done)
    }

    fn fence(&self, request: FenceRequest) -> Later<FenceAnswer> {
        self.ordered(Call::Fence(request), Reply::Fenced)
    }

    fn recovery_read(&self, request: RecoveryReadRequest) -> Later<RecoveryReadAnswer> {
        self.ordered(Call::RecoveryRead(request), Reply::RecoveryRead)
    }

    fn read(&self, request: ReadRequest) -> Later<Vec<StoredEntry>> {
        let request = self.clipped(request);
        let call = (Call::Read(request), request.max_bytes as usize);
        self.make(&self.lanes.reads, call, |caller| {
            Reply::Entries(caller, Collected::new(request.max_bytes))
        })
    }

    fn read_heads(&self, request: ReadRequest) -> Later<Vec<EntryHead>> {
        let request = self.clipped(request);
        let call = (Call::ReadHeads(request), request.max_bytes as usize);
        self.make(&self.lanes.reads, call, |caller| {
            Reply::Heads(caller, Collected::new(request.max_bytes))
        })
    }

    fn delete(&self, to: Address) -> Later<()> {
        self.ordered(Call::Delete(to), Reply::Done)
    }

    /// Beside the ordered calls: what it tells is what was durable when it was answered.
    fn inventory(&self, request: InventoryRequest) -> Later<Inventory> {
        let call = (Call::Inventory(request), SMALL_BYTES);
        self.make(&self.lanes.reads, call, Reply::Held)
    }
}
