//! Whether this broker still owns a partition (storage.md P5): a failed guard ends all of an owner's work at once.

use bookie_metadata::Compare;
use hulse_proto::error::{Fault, Reason};
use tokio::time::timeout;

use super::takeover::Collaborators;

/// The fault of a partition whose owner's key is not as `guard` has it any more; `None` while it is, or while metadata are silent
/// (silence is no loss, ARCHITECTURE D6).
pub(super) async fn lost(with: &Collaborators, guard: &Compare) -> Option<Fault> {
    let look = with.metadata.get(guard.key());
    let Ok(Ok(found)) = timeout(with.client.config().metadata_fresh, look).await else {
        return None;
    };
    let stands = match (guard, found) {
        (Compare::Version(_, version), Some(found)) => found.version == *version,
        (Compare::Version(..), None) => false,
        (Compare::Absent(_), found) => found.is_none(),
        (Compare::Exists(_), found) => found.is_some(),
    };
    (!stands).then(moved)
}

/// Another broker took the partition over, or it was deleted.
pub(crate) fn moved() -> Fault {
    let why = "another broker took the partition over; look its owner up again";
    Fault::new(Reason::PartitionMoved, why)
}
