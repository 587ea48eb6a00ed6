//! The seam: who may be placed, and how a member is called.

use std::sync::Arc;

use bookie_metadata::{BoxFuture, MetadataError};
use hulse_proto::bookie::BookieCalls;
use hulse_proto::ledger::Member;

/// A bookie that may become a member of an ensemble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Who, and which life of its disk.
    pub member: Member,
    /// Its lease stands.
    pub live: bool,
    /// It takes data (not read-only, not full).
    pub writable: bool,
    /// Failure domain; may be empty.
    pub zone: String,
}

/// Finds storage nodes.
pub trait BookieDirectory: Send + Sync + 'static {
    /// The calls of a member; `None` when its bookie is not known or not connected, which counts as no answer.
    ///
    /// Called for every add: must be cheap and must not block. The bookie itself checks the incarnation (storage.md B0).
    fn calls(&self, member: &Member) -> Option<Arc<dyn BookieCalls>>;

    /// Bookies that may be placed, from metadata: the ACTIVE ones of `bookie/{name}`, joined with `node/bookie/{name}`.
    fn candidates(&self) -> BoxFuture<'_, Result<Vec<Candidate>, MetadataError>>;
}
