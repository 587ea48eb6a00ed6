//! Where a ledger's copies are, as a reader knows it. Repair moves them while the ledger stays (storage.md X6), the old ones are let go
//! of (G6), and nobody tells readers: whoever finds nothing where copies were looks again before it says so.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::LedgerMetadata;
use tokio::time::{Instant, timeout};

use crate::ledger_client::Inner;
use crate::metadata::read_ledger;

/// Members that do not answer are no reason to ask metadata more often than this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a reader knows. Shared by its clones.
pub(crate) struct Whereabouts {
    known: RwLock<Arc<LedgerMetadata>>,
    /// What metadata said last, and when.
    looked: Mutex<Option<(Instant, Arc<LedgerMetadata>)>>,
}

/// What came of another look.
pub(crate) enum Looked {
    /// Other members have the entry now: by these metadata.
    Elsewhere(Arc<LedgerMetadata>),
    /// The same members are to have it.
    There,
    /// The ledger is gone.
    Gone,
    /// Metadata do not say.
    Unknown,
}

impl Whereabouts {
    pub(crate) fn new(metadata: Arc<LedgerMetadata>) -> Self {
        Self {
            known: RwLock::new(metadata),
            looked: Mutex::new(None),
        }
    }

    /// The metadata that were heard of last.
    pub(crate) fn known(&self) -> Arc<LedgerMetadata> {
        let known = self.known.read();
        known.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn recent(&self) -> Option<Arc<LedgerMetadata>> {
        let looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, found) = looked.as_ref()?;
        (at.elapsed() < LOOK_AGAIN).then(|| Arc::clone(found))
    }

    /// Asks metadata who has an entry that the members in `asked` did not give; `certainly`: whatever they said a moment ago.
    /// Cancel-safe.
    pub(crate) async fn look(
        &self,
        inner: &Inner,
        ledger: LedgerId,
        (asked, entry): (&LedgerMetadata, EntryId),
        certainly: bool,
    ) -> Looked {
        let recent = self.recent().filter(|_| !certainly);
        let found = match recent {
            Some(recent) => recent,
            None => {
                let read = read_ledger(&*inner.metadata, ledger);
                match timeout(inner.config.read_timeout, read).await {
                    Ok(Ok(Some((found, _)))) => self.heard(found),
                    Ok(Ok(None)) => return Looked::Gone,
                    Ok(Err(_)) | Err(_) => return Looked::Unknown,
                }
            }
        };
        match found.fragment_of(entry).ensemble == asked.fragment_of(entry).ensemble {
            true => Looked::There,
            false => Looked::Elsewhere(found),
        }
    }

    fn heard(&self, found: LedgerMetadata) -> Arc<LedgerMetadata> {
        let found = Arc::new(found);
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        *looked = Some((Instant::now(), Arc::clone(&found)));
        drop(looked);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        *known = Arc::clone(&found);
        found
    }
}
