//! The bookies of a cluster: found in metadata, called wherever they are.
//!
//! Addresses are followed by a watch, and never forgotten: while metadata are silent, or a bookie's lease has ended, the last known
//! address is as good as any. A bookie that has moved is called anew at its new one.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bookie_metadata::{
    BoxFuture, ListRequest, MetadataError, MetadataStore, PAGE_ROWS_MAX, Revision, WatchEvent,
};
use futures::StreamExt as _;
use hulse_proto::bookie::BookieCalls;
use hulse_proto::id::NodeName;
use hulse_proto::ledger::Member;
use hulse_proto::wire::metadata as wire;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::listing::{LIVE, decode, list_bookies};
use super::seam::{BookieDirectory, Candidate};

/// After metadata did not answer, or a watch ended.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Makes the calls of a bookie at `host:port`. Must not block; what it makes dials at its first call.
pub type Dial = Box<dyn Fn(&NodeName, &str) -> Arc<dyn BookieCalls> + Send + Sync>;

struct Known {
    endpoint: String,
    calls: Arc<dyn BookieCalls>,
}

struct Shared {
    metadata: Arc<dyn MetadataStore>,
    dial: Dial,
    known: RwLock<BTreeMap<NodeName, Known>>,
}

/// A directory over metadata. Its watch ends with it.
pub struct RegisteredBookies {
    shared: Arc<Shared>,
    watch: JoinHandle<()>,
}

impl Drop for RegisteredBookies {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl RegisteredBookies {
    /// Looks for the bookies that run now, and follows those to come. Needs a tokio runtime.
    ///
    /// # Errors
    /// Metadata do not answer this first time.
    pub async fn start(
        metadata: Arc<dyn MetadataStore>,
        dial: Dial,
    ) -> Result<Self, MetadataError> {
        let shared = Arc::new(Shared {
            metadata,
            dial,
            known: RwLock::default(),
        });
        let revision = shared.look().await?;
        let watch = tokio::spawn(Arc::clone(&shared).follow(revision));
        Ok(Self { shared, watch })
    }
}

impl Shared {
    /// Notes every bookie that runs; the revision of what was seen.
    async fn look(&self) -> Result<Revision, MetadataError> {
        let mut request = ListRequest {
            prefix: LIVE.to_owned(),
            after: None,
            limit: PAGE_ROWS_MAX,
            at: None,
        };
        loop {
            let page = self.metadata.list(request.clone()).await?;
            request.after = page.items.last().map(|row| row.key.clone());
            request.at = Some(page.revision);
            for row in page.items {
                self.note_row(&row.key, row.value);
            }
            if !page.more {
                return Ok(page.revision);
            }
        }
    }

    async fn follow(self: Arc<Self>, mut revision: Revision) {
        loop {
            let mut changes = self.metadata.watch(LIVE, revision);
            while let Some(Ok(change)) = changes.next().await {
                if let WatchEvent::Put(row) = change {
                    self.note_row(&row.key, row.value);
                }
            }
            loop {
                sleep(LOOK_AGAIN).await;
                match self.look().await {
                    Ok(seen) => {
                        revision = seen;
                        break;
                    }
                    Err(error) => tracing::debug!(%error, "bookies are not looked for"),
                }
            }
        }
    }

    fn note_row(&self, key: &str, value: bytes::Bytes) {
        let name = key.strip_prefix(LIVE).map(NodeName::new);
        match (name, decode::<wire::Node>(key, value)) {
            (Some(Ok(name)), Ok(node)) => self.note(&name, &node.endpoint),
            _ => tracing::warn!(key, "a bookie's key in metadata cannot be read"),
        }
    }

    fn note(&self, name: &NodeName, endpoint: &str) {
        let same = |known: &BTreeMap<NodeName, Known>| {
            let known = known.get(name);
            known.is_some_and(|known| known.endpoint == endpoint)
        };
        if same(&self.known.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let mut all = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if same(&all) {
            return;
        }
        tracing::info!(bookie = %name, endpoint, "bookie found");
        let known = Known {
            endpoint: endpoint.to_owned(),
            calls: (self.dial)(name, endpoint),
        };
        let before = all.insert(name.clone(), known);
        drop(all);
        // What is out at the old address keeps its connection until it is answered.
        drop(before);
    }
}

impl BookieDirectory for RegisteredBookies {
    fn calls(&self, member: &Member) -> Option<Arc<dyn BookieCalls>> {
        let known = self.shared.known.read();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        known.get(&member.bookie).map(|known| known.calls.clone())
    }

    fn candidates(&self) -> BoxFuture<'_, Result<Vec<Candidate>, MetadataError>> {
        Box::pin(async move {
            let listed = list_bookies(&*self.shared.metadata).await?;
            let candidates = listed.into_iter().map(|listed| {
                // Whoever is placed is called next.
                if let Some(endpoint) = &listed.endpoint {
                    self.shared.note(&listed.candidate.member.bookie, endpoint);
                }
                listed.candidate
            });
            Ok(candidates.collect())
        })
    }
}
