//! Who can be called: the one bookie of this process directly, those of a cluster over the network.

use std::collections::BTreeMap;
use std::sync::Arc;

use bookie_client::{BookieDirectory, Candidate, RegisteredBookies, list_bookies};
use bookie_metadata::{BoxFuture, MetadataError, MetadataStore};
use bookie_transport::{Connect, RemoteBookie, RemoteConfig, TcpConnect};
use hulse_proto::bookie::BookieCalls;
use hulse_proto::id::NodeName;
use hulse_proto::ledger::Member;

/// Bookies of this process by name.
pub(crate) struct LocalBookies {
    metadata: Arc<dyn MetadataStore>,
    calls: BTreeMap<NodeName, Arc<dyn BookieCalls>>,
}

impl LocalBookies {
    /// One bookie.
    pub(crate) fn new(
        metadata: Arc<dyn MetadataStore>,
        name: NodeName,
        calls: Arc<dyn BookieCalls>,
    ) -> Self {
        Self {
            metadata,
            calls: BTreeMap::from([(name, calls)]),
        }
    }
}

impl BookieDirectory for LocalBookies {
    fn calls(&self, member: &Member) -> Option<Arc<dyn BookieCalls>> {
        self.calls.get(&member.bookie).cloned()
    }

    fn candidates(&self) -> BoxFuture<'_, Result<Vec<Candidate>, MetadataError>> {
        Box::pin(async move {
            let listed = list_bookies(&*self.metadata).await?;
            Ok(listed.into_iter().map(|listed| listed.candidate).collect())
        })
    }
}

/// The bookies of a cluster, found in metadata and called over gRPC.
///
/// # Errors
/// Metadata do not answer.
pub(crate) async fn of_cluster(
    metadata: Arc<dyn MetadataStore>,
) -> Result<RegisteredBookies, MetadataError> {
    let connect: Arc<dyn Connect> = Arc::new(TcpConnect);
    let dial = move |name: &NodeName, endpoint: &str| {
        let config = RemoteConfig::default();
        let remote = RemoteBookie::new(name.clone(), endpoint, config, Arc::clone(&connect));
        Arc::new(remote) as Arc<dyn BookieCalls>
    };
    RegisteredBookies::start(metadata, Box::new(dial)).await
}
