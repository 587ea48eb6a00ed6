//! The store as one process sees it: through its gate, with the crash points of its transactions.

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::{
    BoxFuture, Compare, LeaseId, ListRequest, MetadataError, MetadataStore, Op, Page, Revision,
    Txn, TxnOutcome, Versioned, WatchStream,
};
use futures::StreamExt as _;
use hulse_proto::ledger::{LedgerMetadata, LedgerState};

use crate::crash_point::{CrashPlan, CrashPoint, Side};
use crate::process::Process;
use crate::trace;
use crate::trace::Trace;

/// Whose transactions these are: decides which crash points they may hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A broker, or whoever else has a ledger client.
    Client,
    /// A bookie.
    Bookie,
    /// Repair.
    Upkeep,
}

/// A gate before a store.
pub struct ProcessStore {
    process: Process,
    role: Role,
    store: Arc<dyn MetadataStore>,
    crashes: CrashPlan,
    trace: Trace,
}

impl ProcessStore {
    /// The store as this process sees it.
    pub fn new(
        process: Process,
        role: Role,
        store: Arc<dyn MetadataStore>,
        crashes: CrashPlan,
        trace: Trace,
    ) -> Self {
        Self {
            process,
            role,
            store,
            crashes,
            trace,
        }
    }

    fn through<'a, T: Send + 'a>(
        &'a self,
        what: String,
        call: BoxFuture<'a, Result<T, MetadataError>>,
    ) -> BoxFuture<'a, Result<T, MetadataError>> {
        Box::pin(async move {
            self.process.running().await;
            let doomed = self.doomed().await;
            let answer = call.await;
            if doomed {
                self.fall().await;
            }
            self.process.running().await;
            if let Err(error) = &answer {
                trace!(self.trace, "{} {what}: {error}", self.process.name());
            }
            answer
        })
    }

    /// True when this call is the process's last effect; it does not return when not even that happens.
    async fn doomed(&self) -> bool {
        match self.process.effect() {
            Some(Side::Before) => self.fall().await,
            effect => effect.is_some(),
        }
    }

    /// Dies at no numbered point.
    async fn fall(&self) -> ! {
        trace!(
            self.trace,
            "{} dies at an effect of metadata",
            self.process.name()
        );
        self.process.kill();
        std::future::pending().await
    }

    /// Dies, for ever.
    async fn die(&self, point: CrashPoint, side: Side) -> ! {
        trace!(
            self.trace,
            "{} dies {side:?} crash point {}",
            self.process.name(),
            point.0
        );
        self.process.kill();
        std::future::pending().await
    }
}

/// The crash point that a transaction passes.
fn point(role: Role, txn: &Txn) -> Option<CrashPoint> {
    match role {
        Role::Upkeep => {
            let repairs = txn.ops.iter().any(|op| op.key().starts_with("ledger/"));
            repairs.then_some(CrashPoint(24))
        }
        Role::Bookie => {
            let registers = txn.ops.iter().any(|op| op.key().starts_with("bookie/"));
            registers.then_some(CrashPoint(13))
        }
        Role::Client => client_point(txn),
    }
}

/// Told by what the transaction makes of ledgers: a roll is a close and a create at once.
fn client_point(txn: &Txn) -> Option<CrashPoint> {
    let is_new = |key: &str| {
        txn.compares
            .iter()
            .any(|compare| matches!(compare, Compare::Absent(absent) if absent == key))
    };
    let (mut creates, mut point) = (false, None);
    for op in &txn.ops {
        let Op::Put { key, value, .. } = op else {
            continue;
        };
        let Some(metadata) = key
            .starts_with("ledger/")
            .then(|| LedgerMetadata::decode(value).ok())
            .flatten()
        else {
            continue;
        };
        let by_recovery = metadata.recovery_token.0 > 0;
        match metadata.state {
            LedgerState::Open if is_new(key) => creates = true,
            LedgerState::Open => point = Some(16),
            LedgerState::InRecovery => point = Some(20),
            LedgerState::Closed if by_recovery => point = Some(23),
            LedgerState::Closed => point = Some(18),
            LedgerState::Deleting => {}
        }
    }
    match (creates, point) {
        (true, Some(18)) => Some(CrashPoint(19)),
        (true, None) => Some(CrashPoint(15)),
        (_, point) => point.map(CrashPoint),
    }
}

fn describe(txn: &Txn) -> String {
    let keys: Vec<&str> = txn.ops.iter().map(Op::key).collect();
    format!("writes {}", keys.join(" "))
}

impl MetadataStore for ProcessStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        self.through(format!("reads {key}"), self.store.get(key))
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        Box::pin(async move {
            self.process.running().await;
            let what = describe(&txn);
            // R2 is behind the recoverer once it is answered; every other one may also never leave.
            let hit =
                point(self.role, &txn).and_then(|point| Some((point, self.crashes.pass(point)?)));
            if let Some((point, Side::Before)) = hit
                && point != CrashPoint(20)
            {
                self.die(point, Side::Before).await;
            }
            let doomed = self.doomed().await;
            let outcome = self.store.txn(txn).await;
            if let Some((point, _)) = hit {
                self.die(point, Side::After).await;
            }
            if doomed {
                self.fall().await;
            }
            self.process.running().await;
            match &outcome {
                Ok(TxnOutcome::Committed { .. }) => {}
                Ok(TxnOutcome::Conflict { .. }) => {
                    trace!(self.trace, "{} {what}: conflict", self.process.name());
                }
                Err(error) => trace!(self.trace, "{} {what}: {error}", self.process.name()),
            }
            outcome
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        let what = format!("lists {}", request.prefix);
        self.through(what, self.store.list(request))
    }

    fn watch(&self, prefix: &str, after: Revision) -> WatchStream {
        let process = self.process.clone();
        let events = self.store.watch(prefix, after);
        Box::pin(events.then(move |event| {
            let process = process.clone();
            async move {
                process.running().await;
                event
            }
        }))
    }

    fn grant_lease(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, MetadataError>> {
        self.through("grants a lease".to_owned(), self.store.grant_lease(ttl))
    }

    fn renew_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        self.through("renews a lease".to_owned(), self.store.renew_lease(lease))
    }

    fn end_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        self.through("ends a lease".to_owned(), self.store.end_lease(lease))
    }
}
