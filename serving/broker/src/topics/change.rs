//! One compare-and-set of one key whose outcome is never guessed.

use std::future::Future;
use std::time::Duration;

use bookie_metadata::{
    Compare, MetadataError, MetadataStore, Op, Revision, Txn, TxnOutcome, Versioned,
};
use hulse_proto::error::Fault;
use tokio::time::Instant;

use crate::storage_fault;

/// How long a change of unknown outcome is pursued before the caller is told so: the last try included, since clients wait little longer.
const RESOLVE_MAX: Duration = Duration::from_secs(10);
/// A transaction that is not answered within this has an unknown outcome.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// A metadata store that does not answer a read within this is unavailable: less than clients wait for one call, who are to hear why.
const READ_WAIT: Duration = Duration::from_secs(3);
/// Waits between two tries: doubled from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// What became of a change.
#[derive(Debug)]
pub(crate) enum Changed {
    /// It was made, by this revision.
    Committed(Revision),
    /// The key has another version than the expected one. `maybe_ours`: an earlier try of this very change may have done it.
    Differs {
        current: Option<Versioned>,
        maybe_ours: bool,
    },
}

/// A key that is expected to have this version; `None`: not to exist.
pub(crate) struct Expected<'a> {
    pub(crate) key: &'a str,
    pub(crate) version: Option<Revision>,
}

impl Expected<'_> {
    fn compare(&self) -> Compare {
        match self.version {
            None => Compare::Absent(self.key.to_owned()),
            Some(version) => Compare::Version(self.key.to_owned(), version),
        }
    }
}

/// Applies `op` to the expected key. While an outcome is unknown and the key has the old version, the same bytes are sent again
/// (storage.md, amendment to M3): of all tries at most one takes effect, also of those that compare that the key is absent, since the store
/// sends none of these while an earlier one may still come ([`MetadataStore::txn`]).
///
/// # Errors
/// `METADATA_UNAVAILABLE`: nothing was changed. `METADATA_UNKNOWN`: not resolved within [`RESOLVE_MAX`]; it may yet be applied.
pub(crate) async fn change(
    store: &dyn MetadataStore,
    expected: Expected<'_>,
    op: Op,
) -> Result<Changed, Fault> {
    let changed = settle(store, expected, op).await;
    changed.map_err(|error| storage_fault::metadata(&error))
}

async fn settle(
    store: &dyn MetadataStore,
    expected: Expected<'_>,
    op: Op,
) -> Result<Changed, MetadataError> {
    let txn = Txn {
        compares: vec![expected.compare()],
        ops: vec![op],
    };
    let give_up = Instant::now() + RESOLVE_MAX;
    let mut pause = PAUSES.0;
    let mut unknown: Option<MetadataError> = None;
    loop {
        let left = give_up.saturating_duration_since(Instant::now());
        match answer(store, &txn, left.min(ANSWER_WAIT)).await {
            Ok(TxnOutcome::Committed { revision }) => return Ok(Changed::Committed(revision)),
            Ok(TxnOutcome::Conflict { mut current }) => {
                return Ok(Changed::Differs {
                    current: current.pop().flatten(),
                    maybe_ours: unknown.is_some(),
                });
            }
            Err(error @ MetadataError::OutcomeUnknown { .. }) => unknown = Some(error),
            // After an unknown try, "nothing was changed" speaks of this try only.
            Err(error @ MetadataError::Unavailable { .. }) if unknown.is_none() => {
                return Err(error);
            }
            Err(MetadataError::Unavailable { .. }) => {}
            Err(error) => return Err(unknown.unwrap_or(error)),
        }
        if Instant::now() + pause > give_up {
            return Err(unknown.expect("the loop goes on only after an unknown outcome"));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

async fn answer(
    store: &dyn MetadataStore,
    txn: &Txn,
    wait: Duration,
) -> Result<TxnOutcome, MetadataError> {
    let answer = tokio::time::timeout(wait, store.txn(txn.clone())).await;
    answer.unwrap_or_else(|_| {
        let why = format!("no answer within {} ms", wait.as_millis());
        Err(MetadataError::OutcomeUnknown { why })
    })
}

/// Waits for a read, but not for ever.
///
/// # Errors
/// `METADATA_UNAVAILABLE`, `DATA_DAMAGED`.
pub(crate) async fn read<T>(
    reading: impl Future<Output = Result<T, MetadataError>>,
) -> Result<T, Fault> {
    let error = match tokio::time::timeout(READ_WAIT, reading).await {
        Ok(Ok(found)) => return Ok(found),
        Ok(Err(error)) => error,
        Err(_) => {
            let why = format!("no answer within {} s", READ_WAIT.as_secs());
            MetadataError::Unavailable { why }
        }
    };
    Err(storage_fault::metadata(&error))
}
