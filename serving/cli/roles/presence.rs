//! The node's presence in metadata: `node/broker/{name}` and `node/bookie/{name}`, bound to one lease (ARCHITECTURE D9).
//!
//! The lease is a hint for placement and never a right (D6): only the store's word ends it, never its silence. When it has ended, the
//! bookie takes no data until it is registered again.

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::{Compare, LeaseId, MetadataError, MetadataStore, Op, Txn, TxnOutcome};
use bytes::Bytes;
use hulse_proto::wire::{Message as _, metadata as wire};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::home::{Home, OtherCell};

/// How long others believe in us without a renewal (ARCHITECTURE §5).
pub(super) const LEASE: Duration = Duration::from_secs(3);
/// No mode of a node: its keys are to be written.
const UNWRITTEN: &str = "";
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(1);
/// Attempts of one registration, while answers are unknown.
const REGISTER_TRIES: u32 = 5;
/// A name that is taken is waited for: a process that was killed keeps it until its lease ends, which etcd may do late.
const TAKEN_PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at it.
const TAKEN_LOOK: Duration = Duration::from_millis(200);

/// A key that one process alone may have at a time (storage.md C5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The key, one of those that are registered.
    pub(crate) key: String,
    /// Identity of this start, which stands in its value.
    pub(crate) boot: Bytes,
}

/// What is registered: the keys of one process.
pub(crate) trait Registered: Send + Sync + 'static {
    /// The keys as they are now, bound to a lease.
    fn ops(&self, lease: LeaseId) -> Vec<Op>;

    /// Changes when the keys must be written again.
    fn mode(&self) -> &'static str;

    /// The lease has ended by the store's word, or stands again.
    fn standing(&self, stands: bool);

    /// The store is about to be asked for a lease, or to renew it.
    fn asks(&self) {}

    /// It renewed the lease, or, `anew`, gave one by which the keys stand.
    fn renewed(&self, _anew: bool) {}

    /// Notified when the mode has changed and others should know at once, instead of with the next renewal.
    fn changed(&self) -> Option<Arc<Notify>> {
        None
    }

    /// What no other process may have; `None` where the directory's lock sees to that.
    fn claim(&self) -> Option<Claim> {
        None
    }
}

/// Why a process is not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PresenceError {
    /// The store did not do it.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The store at this address is another one than at the beginning.
    #[error(transparent)]
    OtherCell(#[from] OtherCell),
    /// Another process has the name, and lives.
    #[error("another process has {key} in metadata, at {endpoint:?}")]
    Taken {
        /// Which key.
        key: String,
        /// Where the other is.
        endpoint: String,
    },
}

/// Keys that vanish with this process.
pub(crate) struct Presence<R> {
    store: Arc<dyn MetadataStore>,
    what: R,
    lease: LeaseId,
    mode: &'static str,
    home: Home,
}

impl<R: Registered> Presence<R> {
    /// Registers for the first time. Waits for a name that another process has, for it may just have been killed.
    ///
    /// # Errors
    /// The store's, also when the outcome stays unknown; [`PresenceError::Taken`] when the other one lives.
    pub(crate) async fn register(
        store: Arc<dyn MetadataStore>,
        what: R,
    ) -> Result<Self, PresenceError> {
        let mode = what.mode();
        let home = Home::of(&*store).await?;
        let began = Instant::now();
        let lease = loop {
            match grant(&*store, &what).await {
                Err(PresenceError::Taken { .. }) if began.elapsed() < TAKEN_PATIENCE => {
                    sleep(TAKEN_LOOK).await;
                }
                other => break other?,
            }
        };
        Ok(Self {
            store,
            what,
            lease,
            mode,
            home,
        })
    }

    /// Renews until the end is asked for, then ends the lease.
    ///
    /// # Errors
    /// [`PresenceError::Taken`]: the lease had ended, and another process has the name now. This one must end.
    pub(crate) async fn keep(mut self, shutdown: CancellationToken) -> Result<(), PresenceError> {
        let mut silent = false;
        let changed = self.what.changed().unwrap_or_default();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = changed.notified() => {}
                () = sleep(RENEW) => {}
            }
            match self.renew().await {
                Ok(()) => silent = false,
                Err(error @ PresenceError::Taken { .. }) => return Err(error),
                Err(error) if !silent => {
                    tracing::warn!(%error, "the node's lease could not be renewed; trying on");
                    silent = true;
                }
                Err(_) => {}
            }
        }
        if let Err(error) = self.store.end_lease(self.lease).await {
            tracing::debug!(%error, "the node's lease ends by itself");
        }
        Ok(())
    }

    async fn renew(&mut self) -> Result<(), PresenceError> {
        let mode = self.what.mode();
        self.what.asks();
        let renewed = match self.store.renew_lease(self.lease).await {
            Ok(()) => {
                self.what.renewed(false);
                match mode == self.mode {
                    true => Ok(()),
                    false => write(&*self.store, &self.what, self.lease).await,
                }
            }
            other => other,
        };
        if let Err(MetadataError::LeaseEnded(_)) = renewed {
            tracing::warn!("the node's lease has ended; registering again");
            return self.register_again().await;
        }
        renewed?;
        self.mode = mode;
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn lease(&self) -> LeaseId {
        self.lease
    }

    async fn register_again(&mut self) -> Result<(), PresenceError> {
        self.what.standing(false);
        self.home.check(&*self.store).await??;
        self.lease = grant(&*self.store, &self.what).await?;
        self.what.standing(true);
        // What was written just now is how a node is that does not stand. If this fails, the next renewal sees another mode.
        self.mode = UNWRITTEN;
        let mode = self.what.mode();
        write(&*self.store, &self.what, self.lease).await?;
        self.mode = mode;
        Ok(())
    }
}

/// Writes the keys that this process has.
async fn write(
    store: &dyn MetadataStore,
    what: &impl Registered,
    lease: LeaseId,
) -> Result<(), MetadataError> {
    let txn = Txn {
        compares: Vec::new(),
        ops: what.ops(lease),
    };
    // Without compares it cannot conflict. Nobody else can have written a claimed key meanwhile: it was there.
    store.txn(txn).await.map(drop)
}

/// Writes the keys, if nobody has the claimed one.
async fn take(
    store: &dyn MetadataStore,
    what: &impl Registered,
    lease: LeaseId,
) -> Result<(), PresenceError> {
    let claim = what.claim();
    let compares = claim.iter().map(|claim| Compare::Absent(claim.key.clone()));
    let txn = Txn {
        compares: compares.collect(),
        ops: what.ops(lease),
    };
    let (Some(claim), TxnOutcome::Conflict { current }) = (claim, store.txn(txn).await?) else {
        return Ok(());
    };
    let found = current.into_iter().flatten().next();
    let other = found.and_then(|row| wire::Node::decode(row.value).ok());
    match other {
        // An earlier attempt, whose answer was lost, with a lease that is not used any more: written anew with this one.
        Some(other) if other.boot_uuid == claim.boot => Ok(write(store, what, lease).await?),
        other => Err(PresenceError::Taken {
            key: claim.key,
            endpoint: other.map_or_else(String::new, |other| other.endpoint),
        }),
    }
}

async fn grant(
    store: &dyn MetadataStore,
    what: &impl Registered,
) -> Result<LeaseId, PresenceError> {
    let mut tries = 1;
    loop {
        what.asks();
        let lease = store.grant_lease(LEASE).await?;
        // The same keys twice are the same keys, so an unknown outcome is tried again.
        match take(store, what, lease).await {
            Ok(()) => {
                what.renewed(true);
                return Ok(lease);
            }
            Err(PresenceError::Metadata(
                MetadataError::OutcomeUnknown { .. } | MetadataError::LeaseEnded(_),
            )) if tries < REGISTER_TRIES => {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bookie_metadata::MemoryStore;

    use super::*;

    const KEY: &str = "node/broker/a";

    #[derive(Clone)]
    struct Rows(Arc<Mutex<(&'static str, Vec<bool>)>>);

    impl Registered for Rows {
        fn ops(&self, lease: LeaseId) -> Vec<Op> {
            vec![Op::Put {
                key: KEY.to_owned(),
                value: self.mode().into(),
                lease: Some(lease),
            }]
        }

        fn mode(&self) -> &'static str {
            let state = self.0.lock().unwrap();
            match state.1.last() {
                Some(false) => "readonly",
                _ => state.0,
            }
        }

        fn standing(&self, stands: bool) {
            self.0.lock().unwrap().1.push(stands);
        }
    }

    async fn begin() -> (Arc<dyn MetadataStore>, Rows, Presence<Rows>) {
        let store: Arc<dyn MetadataStore> = Arc::new(MemoryStore::new());
        let rows = Rows(Arc::new(Mutex::new(("normal", Vec::new()))));
        let presence = Presence::register(Arc::clone(&store), rows.clone())
            .await
            .unwrap();
        (store, rows, presence)
    }

    async fn value(store: &Arc<dyn MetadataStore>) -> Option<bytes::Bytes> {
        store.get(KEY).await.unwrap().map(|found| found.value)
    }

    #[tokio::test(start_paused = true)]
    async fn presence_outlives_its_lease_time_and_ends_with_the_process() {
        let (store, rows, presence) = begin().await;
        let shutdown = CancellationToken::new();
        let kept = tokio::spawn(presence.keep(shutdown.clone()));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(value(&store).await.unwrap(), "normal");
        rows.0.lock().unwrap().0 = "readonly";
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(value(&store).await.unwrap(), "readonly");
        shutdown.cancel();
        kept.await.unwrap().unwrap();
        assert_eq!(value(&store).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn lease_that_was_lost_is_taken_again_and_the_node_hears_of_both() {
        let (store, rows, presence) = begin().await;
        store.end_lease(presence.lease).await.unwrap();
        assert_eq!(value(&store).await, None);
        let kept = tokio::spawn(presence.keep(CancellationToken::new()));
        tokio::time::sleep(Duration::from_secs(2)).await;
        // As it is, and not as it was while its lease was gone.
        assert_eq!(value(&store).await.unwrap(), "normal");
        assert_eq!(rows.0.lock().unwrap().1, [false, true]);
        kept.abort();
    }

    /// Notes what it is told of its lease.
    #[derive(Clone, Default)]
    struct Told(Arc<Mutex<Vec<&'static str>>>);

    impl Registered for Told {
        fn ops(&self, lease: LeaseId) -> Vec<Op> {
            vec![Op::Put {
                key: KEY.to_owned(),
                value: "a".into(),
                lease: Some(lease),
            }]
        }

        fn mode(&self) -> &'static str {
            "normal"
        }

        fn standing(&self, _: bool) {}

        fn asks(&self) {
            self.0.lock().unwrap().push("asks");
        }

        fn renewed(&self, anew: bool) {
            let word = if anew { "anew" } else { "renewed" };
            self.0.lock().unwrap().push(word);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_registered_hears_of_each_lease_and_each_renewal_after_it_was_asked_for() {
        let store: Arc<dyn MetadataStore> = Arc::new(MemoryStore::new());
        let told = Told::default();
        let presence = Presence::register(Arc::clone(&store), told.clone());
        let presence = presence.await.unwrap();
        let lease = presence.lease;
        let kept = tokio::spawn(presence.keep(CancellationToken::new()));
        tokio::time::sleep(RENEW * 3 / 2).await;
        store.end_lease(lease).await.unwrap();
        tokio::time::sleep(RENEW).await;
        let heard = told.0.lock().unwrap().clone();
        // The second renewal is refused, and followed by another lease.
        let expected = ["asks", "anew", "asks", "renewed", "asks", "asks", "anew"];
        assert_eq!(heard, expected);
        kept.abort();
    }

    /// A process that claims its key.
    struct Claimed(&'static str);

    impl Registered for Claimed {
        fn ops(&self, lease: LeaseId) -> Vec<Op> {
            let node = wire::Node {
                boot_uuid: self.0.into(),
                endpoint: format!("{}:1", self.0),
                ..wire::Node::default()
            };
            vec![Op::Put {
                key: KEY.to_owned(),
                value: node.encode_to_vec().into(),
                lease: Some(lease),
            }]
        }

        fn mode(&self) -> &'static str {
            "normal"
        }

        fn standing(&self, _: bool) {}

        fn claim(&self) -> Option<Claim> {
            Some(Claim {
                key: KEY.to_owned(),
                boot: self.0.into(),
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn claimed_name_is_taken_once_its_holder_is_dead_and_refused_while_it_lives() {
        let store: Arc<dyn MetadataStore> = Arc::new(MemoryStore::new());
        let register = |boot| Presence::register(Arc::clone(&store), Claimed(boot));
        // Killed: nobody renews it.
        drop(register("a").await.unwrap());
        let began = Instant::now();
        let second = register("b").await.unwrap();
        assert!(
            began.elapsed() >= Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
        let lease = second.lease;
        let kept = tokio::spawn(second.keep(CancellationToken::new()));
        let third = register("c").await.map(drop);
        let Err(PresenceError::Taken { key, endpoint }) = third else {
            panic!("{third:?}");
        };
        assert_eq!((key.as_str(), endpoint.as_str()), (KEY, "b:1"));
        // It loses its lease, another one is faster, and it ends.
        store.end_lease(lease).await.unwrap();
        let fourth = register("d").await.unwrap();
        let ended = kept.await.unwrap();
        assert!(
            matches!(ended, Err(PresenceError::Taken { .. })),
            "{ended:?}"
        );
        drop(fourth);
    }

    #[tokio::test(start_paused = true)]
    async fn registration_whose_answer_was_lost_is_not_taken_for_another() {
        use bookie_metadata::testing::{Fate, FaultyStore};
        let store = FaultyStore::new(Arc::new(MemoryStore::new()));
        store.plan_txns([Fate::UnknownCommitted]);
        let presence = Presence::register(Arc::new(store.clone()), Claimed("a"));
        let presence = presence.await.unwrap();
        assert_eq!(
            store.get(KEY).await.unwrap().unwrap().lease,
            Some(presence.lease)
        );
    }
}
