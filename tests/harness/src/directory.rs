//! Which bookies a client may call and place, in a simulation.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bookie_client::{BookieDirectory, Candidate};
use bookie_metadata::{BoxFuture, MetadataError};
use hulse_proto::bookie::BookieCalls;
use hulse_proto::id::NodeName;
use hulse_proto::ledger::Member;

use crate::bookie::{ClientSide, Endpoint, SimBookie};
use crate::metadata::ObservedStore;

/// The bookies of a world, for one client process.
pub struct SimDirectory {
    client: ClientSide,
    bookies: Vec<Arc<SimBookie>>,
    endpoints: Mutex<BTreeMap<NodeName, Arc<Endpoint>>>,
    store: Arc<ObservedStore>,
    starved: Arc<AtomicBool>,
}

impl SimDirectory {
    /// All of them; those that leave, as metadata say, are not offered for new ledgers, and none is while `starved` is set.
    pub fn new(
        client: ClientSide,
        bookies: Vec<Arc<SimBookie>>,
        store: Arc<ObservedStore>,
        starved: Arc<AtomicBool>,
    ) -> Self {
        Self {
            store,
            client,
            bookies,
            endpoints: Mutex::default(),
            starved,
        }
    }
}

impl BookieDirectory for SimDirectory {
    fn calls(&self, member: &Member) -> Option<Arc<dyn BookieCalls>> {
        let mut endpoints = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(endpoint) = endpoints.get(&member.bookie) {
            return Some(endpoint.clone());
        }
        let bookie = self
            .bookies
            .iter()
            .find(|bookie| bookie.name() == member.bookie.as_str())?;
        let endpoint = Arc::new(Endpoint::new(self.client.clone(), bookie.clone()));
        endpoints.insert(member.bookie.clone(), endpoint.clone());
        Some(endpoint)
    }

    fn candidates(&self) -> BoxFuture<'_, Result<Vec<Candidate>, MetadataError>> {
        let starved = self.starved.load(Ordering::Relaxed);
        let candidates = self
            .bookies
            .iter()
            .filter(|bookie| !starved && !self.store.is_leaving(bookie.name()))
            .filter_map(|bookie| {
                Some(Candidate {
                    member: bookie.member()?,
                    live: bookie.is_up(),
                    writable: bookie.is_writable() || !bookie.is_up(),
                    zone: String::new(),
                })
            });
        let candidates = candidates.collect();
        Box::pin(async move { Ok(candidates) })
    }
}
