//! [`BookieCalls`] on the node. Each method takes its place in the order before it returns; the future only waits.

use hulse_proto::bookie::{
    AddRequest, Address, BookieCalls, BookieError, Call, EntryHead, FenceAnswer, FenceRequest,
    Inventory, InventoryRequest, ReadRequest, RecoveryReadAnswer, RecoveryReadRequest, StoredEntry,
};
use tokio::sync::oneshot;

use super::node::BookieNode;
use super::read_entries::heads;
use super::read_pool::ReadJob;
use super::shared::Reply;
use crate::core::{Event, Part};

/// The answer, or what it means that nobody will give one.
fn answer<T: Send + 'static>(receiver: oneshot::Receiver<Result<T, BookieError>>) -> Call<T> {
    Box::pin(async move {
        receiver.await.unwrap_or_else(|_| {
            Err(BookieError::NoAnswer {
                why: "the bookie stopped".to_owned(),
            })
        })
    })
}

fn refused<T: Send + 'static>(error: BookieError) -> Call<T> {
    Box::pin(std::future::ready(Err(error)))
}

impl BookieCalls for BookieNode {
    fn add(&self, request: AddRequest) -> Call<()> {
        // Before the lock: the checksum of the payload costs time.
        if let Err(error) = request.entry.verify() {
            return refused(BookieError::Invalid {
                why: error.to_string(),
            });
        }
        let (sender, receiver) = oneshot::channel();
        let now = self.shared.now();
        self.shared.submit(Reply::Add(sender), |ticket| Event::Add {
            ticket,
            request,
            now,
        });
        answer(receiver)
    }

    fn fence(&self, request: FenceRequest) -> Call<FenceAnswer> {
        let (sender, receiver) = oneshot::channel();
        self.shared
            .submit(Reply::Fence(sender), |ticket| Event::Fence {
                ticket,
                request,
            });
        answer(receiver)
    }

    fn recovery_read(&self, request: RecoveryReadRequest) -> Call<RecoveryReadAnswer> {
        let (sender, receiver) = oneshot::channel();
        self.shared
            .submit(Reply::RecoveryRead(sender), |ticket| Event::RecoveryRead {
                ticket,
                request,
            });
        answer(receiver)
    }

    fn read(&self, request: ReadRequest) -> Call<Vec<StoredEntry>> {
        let wanted = match self.shared.lock().core.want(&request, Part::Whole) {
            Ok(wanted) => wanted,
            Err(error) => return refused(error),
        };
        let (reply, receiver) = oneshot::channel();
        let job = ReadJob::Entries {
            reply,
            request,
            wanted,
        };
        self.shared.reads.push(&self.shared, job);
        answer(receiver)
    }

    fn read_heads(&self, request: ReadRequest) -> Call<Vec<EntryHead>> {
        let wanted = match self.shared.lock().core.want(&request, heads()) {
            Ok(wanted) => wanted,
            Err(error) => return refused(error),
        };
        let (reply, receiver) = oneshot::channel();
        let job = ReadJob::Heads {
            reply,
            request,
            wanted,
        };
        self.shared.reads.push(&self.shared, job);
        answer(receiver)
    }

    fn delete(&self, to: Address) -> Call<()> {
        let (sender, receiver) = oneshot::channel();
        self.shared
            .submit(Reply::Delete(sender), |ticket| Event::Delete { ticket, to });
        answer(receiver)
    }

    fn inventory(&self, request: InventoryRequest) -> Call<Inventory> {
        let held = match self.shared.lock().core.inventory(&request) {
            Ok(held) => held,
            Err(error) => return refused(error),
        };
        if !request.digests {
            return Box::pin(std::future::ready(Ok(held)));
        }
        let (reply, receiver) = oneshot::channel();
        let to = request.to;
        let job = ReadJob::Digests { reply, to, held };
        self.shared.reads.push(&self.shared, job);
        answer(receiver)
    }
}
