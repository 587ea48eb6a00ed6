//! The node's presence in metadata: `node/broker/{name}` and `node/bookie/{name}`, bound to one lease (ARCHITECTURE D9).
//!
//! The lease is a hint for placement and never a right (D6): only the store's word ends it, never its silence. When it has ended, the
//! bookie takes no data until it is registered again.

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::{LeaseId, MetadataError, MetadataStore, Op, Txn};
use tokio_util::sync::CancellationToken;

/// How long others believe in us without a renewal (ARCHITECTURE §5).
const LEASE: Duration = Duration::from_secs(3);
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(1);
/// Attempts of one registration, while answers are unknown.
const REGISTER_TRIES: u32 = 5;

/// What is registered: the keys of one process.
pub(crate) trait Registered: Send + Sync + 'static {
    /// The keys as they are now, bound to a lease.
    fn ops(&self, lease: LeaseId) -> Vec<Op>;

    /// Changes when the keys must be written again.
    fn mode(&self) -> &'static str;

    /// The lease has ended by the store's word, or stands again.
    fn standing(&self, stands: bool);
}

/// Keys that vanish with this process.
pub(crate) struct Presence<R> {
    store: Arc<dyn MetadataStore>,
    what: R,
    lease: LeaseId,
    mode: &'static str,
}

impl<R: Registered> Presence<R> {
    /// Registers for the first time.
    ///
    /// # Errors
    /// The store's, also when the outcome stays unknown.
    pub(crate) async fn register(
        store: Arc<dyn MetadataStore>,
        what: R,
    ) -> Result<Self, MetadataError> {
        let mode = what.mode();
        let lease = grant(&*store, &what).await?;
        Ok(Self {
            store,
            what,
            lease,
            mode,
        })
    }

    /// Renews until the end is asked for, then ends the lease.
    pub(crate) async fn keep(mut self, shutdown: CancellationToken) {
        let mut silent = false;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(RENEW) => {}
            }
            match self.renew().await {
                Ok(()) => silent = false,
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
    }

    async fn renew(&mut self) -> Result<(), MetadataError> {
        let mode = self.what.mode();
        let renewed = match self.store.renew_lease(self.lease).await {
            Ok(()) if mode != self.mode => put(&*self.store, &self.what, self.lease).await,
            other => other,
        };
        if let Err(MetadataError::LeaseEnded(_)) = renewed {
            tracing::warn!("the node's lease has ended; registering again");
            self.what.standing(false);
            self.lease = grant(&*self.store, &self.what).await?;
            self.what.standing(true);
        } else {
            renewed?;
        }
        self.mode = mode;
        Ok(())
    }
}

async fn put(
    store: &dyn MetadataStore,
    what: &impl Registered,
    lease: LeaseId,
) -> Result<(), MetadataError> {
    let txn = Txn {
        compares: Vec::new(),
        ops: what.ops(lease),
    };
    // Without compares it cannot conflict.
    store.txn(txn).await.map(drop)
}

async fn grant(
    store: &dyn MetadataStore,
    what: &impl Registered,
) -> Result<LeaseId, MetadataError> {
    let mut tries = 1;
    loop {
        let lease = store.grant_lease(LEASE).await?;
        // The same keys twice are the same keys, so an unknown outcome is tried again.
        match put(store, what, lease).await {
            Ok(()) => return Ok(lease),
            Err(MetadataError::OutcomeUnknown { .. } | MetadataError::LeaseEnded(_))
                if tries < REGISTER_TRIES =>
            {
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
            self.0.lock().unwrap().0
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
        kept.await.unwrap();
        assert_eq!(value(&store).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn lease_that_was_lost_is_taken_again_and_the_node_hears_of_both() {
        let (store, rows, presence) = begin().await;
        store.end_lease(presence.lease).await.unwrap();
        assert_eq!(value(&store).await, None);
        let kept = tokio::spawn(presence.keep(CancellationToken::new()));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(value(&store).await.is_some());
        assert_eq!(rows.0.lock().unwrap().1, [false, true]);
        kept.abort();
    }
}
