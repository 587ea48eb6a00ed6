//! A directory whose bookies never change, and a clock that stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use bookie_metadata::{BoxFuture, MetadataError};
use hulse_proto::bookie::BookieCalls;
use hulse_proto::id::NodeName;
use hulse_proto::ledger::Member;
use hulse_proto::time::{TimestampMs, WallClock};

use super::bookie::MemoryBookie;
use crate::directory::{BookieDirectory, Candidate};

/// Bookies by name; all live and writable unless said otherwise.
#[derive(Default)]
pub struct StaticDirectory {
    bookies: BTreeMap<NodeName, (Candidate, Arc<dyn BookieCalls>)>,
}

impl StaticDirectory {
    /// Without bookies: creating a ledger fails.
    pub fn new() -> Self {
        Self::default()
    }

    /// Of memory bookies.
    pub fn of(bookies: &[Arc<MemoryBookie>]) -> Self {
        bookies.iter().fold(Self::new(), |directory, bookie| {
            directory.with(bookie.member().clone(), bookie.clone())
        })
    }

    /// Adds a live and writable bookie.
    #[must_use]
    pub fn with(self, member: Member, calls: Arc<dyn BookieCalls>) -> Self {
        let candidate = Candidate {
            member,
            live: true,
            writable: true,
            zone: String::new(),
        };
        self.with_candidate(candidate, calls)
    }

    /// Adds a bookie as given.
    #[must_use]
    pub fn with_candidate(mut self, candidate: Candidate, calls: Arc<dyn BookieCalls>) -> Self {
        let name = candidate.member.bookie.clone();
        self.bookies.insert(name, (candidate, calls));
        self
    }
}

impl BookieDirectory for StaticDirectory {
    fn calls(&self, member: &Member) -> Option<Arc<dyn BookieCalls>> {
        self.bookies
            .get(&member.bookie)
            .map(|(_, calls)| calls.clone())
    }

    fn candidates(&self) -> BoxFuture<'_, Result<Vec<Candidate>, MetadataError>> {
        let all = self
            .bookies
            .values()
            .map(|(candidate, _)| candidate.clone())
            .collect();
        Box::pin(async move { Ok(all) })
    }
}

/// A wall clock that stands still.
#[derive(Debug, Clone, Copy, Default)]
pub struct FixedClock(pub TimestampMs);

impl WallClock for FixedClock {
    fn now_ms(&self) -> TimestampMs {
        self.0
    }
}
