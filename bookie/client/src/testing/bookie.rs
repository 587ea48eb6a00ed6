//! [`MemoryLedgers`] behind `BookieCalls`: one task, one queue, so that calls take effect in the order of the method calls.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bookie_metadata::MetadataStore;
use futures::future::BoxFuture;
use hulse_proto::bookie::{
    AddRequest, Address, BookieCalls, BookieError, Call, EntryHead, FenceAnswer, FenceRequest,
    Inventory, InventoryRequest, ReadRequest, RecoveryReadAnswer, RecoveryReadRequest, StoredEntry,
};
use hulse_proto::id::{CellId, Incarnation, NodeName};
use hulse_proto::ledger::Member;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::fault::Fault;
use super::ledgers::MemoryLedgers;
use crate::metadata::read_ledger;

type Job = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

#[derive(Default)]
struct Faults {
    /// The next calls, in order.
    next: VecDeque<Option<Fault>>,
    /// All calls while nothing is planned.
    always: Option<Fault>,
}

/// A storage node in memory. Needs a tokio runtime; its task ends with the last reference.
pub struct MemoryBookie {
    member: Member,
    ledgers: Arc<Mutex<MemoryLedgers>>,
    faults: Mutex<Faults>,
    jobs: mpsc::UnboundedSender<Job>,
    reads_refused: AtomicBool,
    metadata: Option<Arc<dyn MetadataStore>>,
}

impl MemoryBookie {
    /// Starts a bookie. With `metadata` it reads a ledger's key at first contact (B2), without it takes any ledger.
    pub fn start(
        cell: CellId,
        name: &str,
        incarnation: Incarnation,
        metadata: Option<Arc<dyn MetadataStore>>,
    ) -> Arc<Self> {
        let member = Member {
            bookie: NodeName::new(name).expect("tests use valid names"),
            incarnation,
        };
        let (jobs, mut queue) = mpsc::unbounded_channel::<Job>();
        tokio::spawn(async move {
            while let Some(job) = queue.recv().await {
                job().await;
            }
        });
        Arc::new(Self {
            ledgers: Arc::new(Mutex::new(MemoryLedgers::new(cell, member.clone()))),
            member,
            faults: Mutex::new(Faults::default()),
            jobs,
            reads_refused: AtomicBool::new(false),
            metadata,
        })
    }

    /// Who it is.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Looks at, or hurts, what it holds.
    pub fn ledgers(&self) -> MutexGuard<'_, MemoryLedgers> {
        lock(&self.ledgers)
    }

    /// Plans the fates of the next calls of any kind, in order; `None` passes.
    pub fn plan(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        lock(&self.faults).next.extend(faults);
    }

    /// From now on every call that nothing is planned for has this fate.
    pub fn always(&self, fault: Option<Fault>) {
        lock(&self.faults).always = fault;
    }

    /// From now on reads of readers are not answered, or answered again; recovery's are.
    pub fn refuse_reads(&self, refuse: bool) {
        self.reads_refused.store(refuse, Ordering::Relaxed);
    }

    fn draw(&self) -> Option<Fault> {
        let mut faults = lock(&self.faults);
        match faults.next.pop_front() {
            Some(planned) => planned,
            None => faults.always.clone(),
        }
    }

    /// Enqueues a request; it is carried out in its turn.
    fn call<T: Send + 'static>(
        &self,
        carry_out: impl FnOnce(&mut MemoryLedgers) -> Result<T, BookieError> + Send + 'static,
    ) -> Call<T> {
        self.call_after(|_| Box::pin(async { Ok(()) }), carry_out)
    }

    /// As [`MemoryBookie::call`], after `prepare`, for which the whole queue waits.
    fn call_after<T: Send + 'static>(
        &self,
        prepare: impl FnOnce(Arc<Mutex<MemoryLedgers>>) -> BoxFuture<'static, Result<(), BookieError>>
        + Send
        + 'static,
        carry_out: impl FnOnce(&mut MemoryLedgers) -> Result<T, BookieError> + Send + 'static,
    ) -> Call<T> {
        let fault = self.draw();
        match &fault {
            Some(Fault::RequestLost) => return Box::pin(async { Err(lost()) }),
            Some(Fault::RequestSilent) => return Box::pin(std::future::pending()),
            Some(Fault::Refuse(error)) => {
                let error = error.clone();
                return Box::pin(async { Err(error) });
            }
            _ => {}
        }
        let (answer, waiting) = oneshot::channel();
        let ledgers = self.ledgers.clone();
        let work = async move {
            let result = match prepare(ledgers.clone()).await {
                Ok(()) => carry_out(&mut lock(&ledgers)),
                Err(error) => Err(error),
            };
            // The caller may be gone; the effect stands.
            let _ = answer.send(result);
        };
        if let Some(Fault::Late(delay)) = fault {
            tokio::spawn(async move {
                sleep(delay).await;
                work.await;
            });
        } else {
            let _ = self.jobs.send(Box::new(move || Box::pin(work)));
        }
        Box::pin(async move {
            match fault {
                Some(Fault::AnswerLost) => {
                    let _ = waiting.await;
                    Err(lost())
                }
                Some(Fault::AnswerSilent) => std::future::pending().await,
                Some(Fault::Slow(delay)) => {
                    let answer = waiting.await;
                    sleep(delay).await;
                    answer.unwrap_or_else(|_| Err(lost()))
                }
                _ => waiting.await.unwrap_or_else(|_| Err(lost())),
            }
        })
    }
}

fn lost() -> BookieError {
    BookieError::NoAnswer {
        why: "lost on the way".to_owned(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// B2: reads the ledger's key at first contact.
async fn first_contact(
    ledgers: Arc<Mutex<MemoryLedgers>>,
    metadata: Arc<dyn MetadataStore>,
    request: AddRequest,
) -> Result<(), BookieError> {
    if !lock(&ledgers).must_verify(&request) {
        return Ok(());
    }
    let ledger = request.to.ledger;
    match read_ledger(&*metadata, ledger).await {
        Ok(found) => lock(&ledgers).verify(ledger, found.as_ref().map(|(metadata, _)| metadata)),
        Err(_) => Err(BookieError::MetadataUnavailable),
    }
}

impl BookieCalls for MemoryBookie {
    fn add(&self, request: AddRequest) -> Call<()> {
        let metadata = self.metadata.clone();
        let first = request.clone();
        self.call_after(
            move |ledgers| match metadata {
                Some(metadata) => Box::pin(first_contact(ledgers, metadata, first)),
                None => Box::pin(async { Ok(()) }),
            },
            move |ledgers| ledgers.add(&request),
        )
    }

    fn fence(&self, request: FenceRequest) -> Call<FenceAnswer> {
        self.call(move |ledgers| ledgers.fence(request))
    }

    fn recovery_read(&self, request: RecoveryReadRequest) -> Call<RecoveryReadAnswer> {
        self.call(move |ledgers| ledgers.recovery_read(request))
    }

    fn read(&self, request: ReadRequest) -> Call<Vec<StoredEntry>> {
        if self.reads_refused.load(Ordering::Relaxed) {
            return Box::pin(async { Err(lost()) });
        }
        self.call(move |ledgers| ledgers.read(request))
    }

    fn read_heads(&self, request: ReadRequest) -> Call<Vec<EntryHead>> {
        self.call(move |ledgers| ledgers.read_heads(request))
    }

    fn delete(&self, to: Address) -> Call<()> {
        self.call(move |ledgers| ledgers.delete(to))
    }

    fn inventory(&self, request: InventoryRequest) -> Call<Inventory> {
        self.call(move |ledgers| ledgers.inventory(request))
    }
}
