//! Reads of a ledger that is in object storage: callers do not see the difference (ARCHITECTURE D7).

use std::sync::{Arc, OnceLock};

use bookie_tier::{TierReads, TieredReader};
use hulse_proto::bookie::{BookieError, EntryHead};
use hulse_proto::entry::Entry;
use hulse_proto::error::ErrorKind;
use hulse_proto::id::{EntryId, LedgerId, NodeName};
use hulse_proto::ledger::LedgerMetadata;

use crate::error::{MemberAnswer, MemberAnswers, ReadError};

/// By this name errors call object storage, among those of bookies.
const STORE: &str = "object-storage";

/// The way to a ledger's segment, shared by the clones of its reader. While bookies need not have the ledger, it has one segment for ever.
#[derive(Clone)]
pub(crate) struct Tiered {
    reads: Arc<TierReads>,
    ledger: LedgerId,
    reader: Arc<OnceLock<TieredReader>>,
}

impl Tiered {
    pub(crate) fn new(reads: Arc<TierReads>, ledger: LedgerId) -> Self {
        Self {
            reads,
            ledger,
            reader: Arc::new(OnceLock::new()),
        }
    }

    fn reader(&self, metadata: &LedgerMetadata) -> Option<&TieredReader> {
        let segment = metadata.tier.as_ref()?.segment.as_ref()?;
        let made = || self.reads.reader(self.ledger, segment.clone());
        Some(self.reader.get_or_init(made))
    }
}

/// Reads a run of entries from the segment. The error, and whether it is that the object is not there.
pub(crate) async fn read(
    tiered: Option<&Tiered>,
    (ledger, metadata): (LedgerId, &LedgerMetadata),
    (first, end, max_bytes): (EntryId, EntryId, usize),
) -> Result<Vec<Entry>, (ReadError, bool)> {
    let reader = tiered.and_then(|tiered| tiered.reader(metadata));
    let Some(reader) = reader else {
        let why = "the ledger is in object storage, of which this process knows nothing: configure [tier]";
        let why = why.to_owned();
        let error = BookieError::NoAnswer { why };
        return Err((unavailable((ledger, first), error), false));
    };
    let error = match reader.read(first, end, max_bytes).await {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    let kind = error.kind();
    let why = error.to_string();
    tracing::debug!(%ledger, entry = %first, %why, "a tiered ledger is not read");
    let absent = kind == ErrorKind::NotFound;
    let members = |error| MemberAnswers(vec![answer(error)]);
    let error = match absent || kind == ErrorKind::Corrupt {
        true => ReadError::Damaged {
            ledger,
            entry: first,
            members: members(BookieError::NoAnswer { why }),
        },
        false => unavailable((ledger, first), BookieError::NoAnswer { why }),
    };
    Err((error, absent))
}

fn unavailable((ledger, entry): (LedgerId, EntryId), error: BookieError) -> ReadError {
    ReadError::Unavailable {
        ledger,
        entry,
        members: MemberAnswers(vec![answer(error)]),
    }
}

fn answer(error: BookieError) -> MemberAnswer {
    MemberAnswer {
        bookie: NodeName::new(STORE).expect("it is a name"),
        error: Some(error),
    }
}

/// Headers and envelopes of entries.
pub(crate) fn heads(entries: &[Entry]) -> Vec<EntryHead> {
    let head = |entry: &Entry| EntryHead {
        header: *entry.header(),
        envelope: entry.envelope(),
    };
    entries.iter().map(head).collect()
}
