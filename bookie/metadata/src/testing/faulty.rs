//! [`FaultyStore`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::fate::{Call, Fate, FaultRates, Late};
use crate::store::{
    BoxFuture, LeaseId, ListRequest, MetadataError, MetadataStore, Page, Revision, Txn, TxnOutcome,
    Versioned, WatchStream,
};

type Chooser = Box<dyn FnMut(Call<'_>) -> Fate + Send>;

/// A store whose answers go wrong as told. Clones share the plan.
///
/// A call takes its fate from the queue of its kind; when that is empty, from the chooser or the seed; else it passes.
pub struct FaultyStore<S: ?Sized> {
    inner: Arc<Inner<S>>,
}

impl<S: ?Sized> Clone for FaultyStore<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

struct Inner<S: ?Sized> {
    plan: Mutex<Plan>,
    /// With `spoken`, and not a watch channel: that wakes its waiters in a random order, and a seed decides everything here.
    silent: AtomicBool,
    spoken: Notify,
    store: Arc<S>,
}

#[derive(Default)]
struct Plan {
    txns: VecDeque<Fate>,
    reads: VecDeque<Fate>,
    leases: VecDeque<Fate>,
    chooser: Option<Chooser>,
    pending: VecDeque<Pending>,
}

struct Pending {
    txn: Txn,
    /// `None`: on demand.
    reads_left: Option<u32>,
}

impl Plan {
    fn draw(&mut self, call: Call<'_>) -> Fate {
        let queue = match call {
            Call::Txn(_) => &mut self.txns,
            Call::Lease => &mut self.leases,
            Call::Get(_) | Call::List(_) | Call::Watch(_) => &mut self.reads,
        };
        queue
            .pop_front()
            .or_else(|| self.chooser.as_mut().map(|choose| choose(call)))
            .unwrap_or(Fate::Pass)
    }

    /// Counts an answered read and takes the transactions that land after it.
    fn after_read(&mut self) -> Vec<Txn> {
        let mut due = Vec::new();
        self.pending.retain_mut(|pending| {
            let Some(left) = &mut pending.reads_left else {
                return true;
            };
            *left = left.saturating_sub(1);
            if *left == 0 {
                due.push(std::mem::take(&mut pending.txn));
                return false;
            }
            true
        });
        due
    }
}

fn unavailable() -> MetadataError {
    MetadataError::Unavailable {
        why: "injected".to_owned(),
    }
}

fn unknown() -> MetadataError {
    MetadataError::OutcomeUnknown {
        why: "injected".to_owned(),
    }
}

impl<S: MetadataStore + ?Sized> FaultyStore<S> {
    /// One that passes everything until told otherwise.
    pub fn new(store: Arc<S>) -> Self {
        Self {
            inner: Arc::new(Inner {
                plan: Mutex::new(Plan::default()),
                silent: AtomicBool::new(false),
                spoken: Notify::new(),
                store,
            }),
        }
    }

    /// The store behind it, which never errs.
    pub fn store(&self) -> Arc<S> {
        Arc::clone(&self.inner.store)
    }

    /// Adds fates of the next transactions.
    pub fn plan_txns(&self, fates: impl IntoIterator<Item = Fate>) {
        self.plan().txns.extend(fates);
    }

    /// Adds fates of the next gets, lists and watches.
    pub fn plan_reads(&self, fates: impl IntoIterator<Item = Fate>) {
        self.plan().reads.extend(fates);
    }

    /// Adds fates of the next lease calls.
    pub fn plan_leases(&self, fates: impl IntoIterator<Item = Fate>) {
        self.plan().leases.extend(fates);
    }

    /// Lets `chooser` decide about every call that no queue decides about.
    pub fn choose(&self, chooser: impl FnMut(Call<'_>) -> Fate + Send + 'static) {
        self.plan().chooser = Some(Box::new(chooser));
    }

    /// Lets a seed decide. The same calls in the same order have the same fates.
    pub fn seed(&self, seed: u64, rates: FaultRates) {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        self.choose(move |call| rates.draw(&mut rng, call));
    }

    /// From now on nothing answers, until [`FaultyStore::speak`]; then waiting calls go on.
    pub fn silence(&self) {
        self.inner.silent.store(true, Ordering::SeqCst);
    }

    /// Ends the silence.
    pub fn speak(&self) {
        self.inner.silent.store(false, Ordering::SeqCst);
        self.inner.spoken.notify_waiters();
    }

    /// Late transactions that have not landed, those with a time excepted.
    pub fn pending(&self) -> usize {
        self.plan().pending.len()
    }

    /// Lands the oldest late transaction; tells what became of it.
    pub async fn land_next(&self) -> Option<Result<TxnOutcome, MetadataError>> {
        let pending = self.plan().pending.pop_front()?;
        Some(self.inner.store.txn(pending.txn).await)
    }

    /// Lands all late transactions, oldest first.
    pub async fn land_all(&self) -> Vec<Result<TxnOutcome, MetadataError>> {
        let mut answers = Vec::new();
        while let Some(answer) = self.land_next().await {
            answers.push(answer);
        }
        answers
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.inner
            .plan
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn spoken(&self) {
        loop {
            let spoken = self.inner.spoken.notified();
            if !self.inner.silent.load(Ordering::SeqCst) {
                return;
            }
            spoken.await;
        }
    }

    /// Makes a call that has no late form.
    async fn call<T>(
        &self,
        fate: Fate,
        lost: fn() -> MetadataError,
        call: impl Future<Output = Result<T, MetadataError>>,
    ) -> Result<T, MetadataError> {
        self.spoken().await;
        match fate {
            Fate::Pass => call.await,
            Fate::Unavailable => Err(unavailable()),
            Fate::Silent(time) => {
                sleep(time).await;
                Err(unavailable())
            }
            Fate::Slow(time) => {
                let answer = call.await;
                sleep(time).await;
                answer
            }
            Fate::UnknownCommitted => call.await.and_then(|_| Err(lost())),
            Fate::UnknownLater(_) | Fate::UnknownNever => Err(lost()),
        }
    }

    async fn read<T>(
        &self,
        fate: Fate,
        call: impl Future<Output = Result<T, MetadataError>>,
    ) -> Result<T, MetadataError> {
        let answer = self.call(fate, unavailable, call).await;
        let due = if answer.is_ok() {
            self.plan().after_read()
        } else {
            Vec::new()
        };
        for txn in due {
            // Nobody waits for its outcome: that is the point.
            let _ = self.inner.store.txn(txn).await;
        }
        answer
    }

    fn land_later(&self, txn: Txn, late: Late) {
        let reads_left = match late {
            Late::OnDemand => None,
            Late::AfterReads(reads) => Some(reads.max(1)),
            Late::After(time) => {
                let store = self.store();
                tokio::spawn(async move {
                    sleep(time).await;
                    // Nobody waits for its outcome: that is the point.
                    let _ = store.txn(txn).await;
                });
                return;
            }
        };
        self.plan().pending.push_back(Pending { txn, reads_left });
    }
}

impl<S: MetadataStore + ?Sized> MetadataStore for FaultyStore<S> {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        let key = key.to_owned();
        Box::pin(async move {
            let fate = self.plan().draw(Call::Get(&key));
            self.read(fate, self.inner.store.get(&key)).await
        })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        Box::pin(async move {
            let fate = self.plan().draw(Call::Txn(&txn));
            if let Fate::UnknownLater(late) = fate {
                self.spoken().await;
                self.land_later(txn, late);
                return Err(unknown());
            }
            self.call(fate, unknown, self.inner.store.txn(txn)).await
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        Box::pin(async move {
            let fate = self.plan().draw(Call::List(&request.prefix));
            self.read(fate, self.inner.store.list(request)).await
        })
    }

    fn watch(&self, prefix: &str, after: Revision) -> WatchStream {
        match self.plan().draw(Call::Watch(prefix)) {
            Fate::Pass | Fate::Slow(_) => self.inner.store.watch(prefix, after),
            _ => Box::pin(futures::stream::iter([Err(unavailable())])),
        }
    }

    fn grant_lease(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, MetadataError>> {
        Box::pin(async move {
            let fate = self.plan().draw(Call::Lease);
            self.call(fate, unknown, self.inner.store.grant_lease(ttl))
                .await
        })
    }

    fn renew_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(async move {
            let fate = self.plan().draw(Call::Lease);
            self.call(fate, unknown, self.inner.store.renew_lease(lease))
                .await
        })
    }

    fn end_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(async move {
            let fate = self.plan().draw(Call::Lease);
            self.call(fate, unknown, self.inner.store.end_lease(lease))
                .await
        })
    }
}
