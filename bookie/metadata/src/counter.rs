//! Numbers that are never given twice: ledger ids, producer ids (keys `id/ledger`, `id/pid`).

use std::ops::Range;

use prost::Message;

use hulse_proto::wire::metadata::Counter;

use crate::store::{Compare, MetadataError, MetadataStore, Op, Txn, TxnOutcome};

/// Attempts at most: each lost one means that somebody else got a block, or that an answer was lost.
pub const RESERVE_TRIES_MAX: u32 = 32;

/// Reserves the next `count` numbers of the counter at `key`; a missing key counts from 0.
///
/// A block whose answer was lost is wasted, never given again: the next attempt compares what is there then, and of two
/// attempts that compare the same version at most one takes effect. Dropping the future may waste a block, too.
///
/// # Errors
/// `Invalid` for a count of 0 or past the last number, `Corrupt` for a value that is no counter, else those of the store;
/// `OutcomeUnknown` and `Unavailable` mean that no number was given.
pub async fn reserve(
    store: &dyn MetadataStore,
    key: &str,
    count: u64,
) -> Result<Range<u64>, MetadataError> {
    if count == 0 {
        return Err(MetadataError::Invalid {
            why: format!("no numbers of {key} were asked for"),
        });
    }
    let mut last = MetadataError::Unavailable {
        why: format!("{key} is contended"),
    };
    for _ in 0..RESERVE_TRIES_MAX {
        let (first, compare) = read(store, key).await?;
        let end = first.checked_add(count).ok_or(MetadataError::Invalid {
            why: format!("{count} numbers of {key} after {first} do not exist"),
        })?;
        let value = Counter { next: end }.encode_to_vec();
        let txn = Txn {
            compares: vec![compare],
            ops: vec![Op::put(key, value)],
        };
        match store.txn(txn).await {
            Ok(TxnOutcome::Committed { .. }) => return Ok(first..end),
            Ok(TxnOutcome::Conflict { .. }) => {}
            Err(error @ MetadataError::OutcomeUnknown { .. }) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// The first number of the counter at `key` that was never given, linearizably: every number below may be in use.
///
/// # Errors
/// `Corrupt` for a value that is no counter, else those of the store.
pub async fn next_number(store: &dyn MetadataStore, key: &str) -> Result<u64, MetadataError> {
    read(store, key).await.map(|(next, _)| next)
}

async fn read(store: &dyn MetadataStore, key: &str) -> Result<(u64, Compare), MetadataError> {
    let Some(row) = store.get(key).await? else {
        return Ok((0, Compare::Absent(key.to_owned())));
    };
    let counter = Counter::decode(row.value).map_err(|error| MetadataError::Corrupt {
        why: format!("the value of {key} is no counter: {error}"),
    })?;
    Ok((counter.next, Compare::Version(row.key, row.version)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::MemoryStore;
    use crate::testing::{Fate, FaultyStore, Late};

    #[tokio::test]
    async fn reserve_by_many_gives_each_number_once() {
        let store = MemoryStore::new();
        let tasks = (0..8u64).map(|count| {
            let store = store.clone();
            async move { reserve(&store, "id/ledger", count + 1).await.unwrap() }
        });
        let mut blocks = futures::future::join_all(tasks).await;
        blocks.sort_by_key(|block| block.start);
        assert_eq!(blocks[0].start, 0);
        assert!(blocks.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(blocks.last().unwrap().end, 36);
    }

    #[tokio::test]
    async fn reserve_with_unknown_outcomes_gives_no_number_twice() {
        let unknown = [
            Fate::UnknownCommitted,
            Fate::UnknownNever,
            Fate::UnknownLater(Late::AfterReads(1)),
            Fate::UnknownLater(Late::OnDemand),
        ];
        for first in unknown {
            for second in unknown {
                let faulty = FaultyStore::new(Arc::new(MemoryStore::new()));
                faulty.plan_txns([Fate::Pass, first, second]);
                let a = reserve(&faulty, "id/pid", 10).await.unwrap();
                let b = reserve(&faulty, "id/pid", 10).await.unwrap();
                let late = faulty.land_all().await;
                assert!(late.iter().all(|answer| answer.is_ok()));
                let c = reserve(&faulty, "id/pid", 10).await.unwrap();
                assert_eq!(a, 0..10);
                assert!(b.start >= a.end && c.start >= b.end, "{a:?} {b:?} {c:?}");
            }
        }
    }

    #[tokio::test]
    async fn reserve_of_bad_input_is_refused() {
        let store = MemoryStore::new();
        let none = reserve(&store, "id/pid", 0).await;
        assert!(matches!(none, Err(MetadataError::Invalid { .. })));
        reserve(&store, "id/pid", u64::MAX).await.unwrap();
        let past = reserve(&store, "id/pid", 1).await;
        assert!(matches!(past, Err(MetadataError::Invalid { .. })));
        let junk = Txn {
            compares: vec![],
            ops: vec![Op::put("id/junk", &b"\xff\xff"[..])],
        };
        store.txn(junk).await.unwrap();
        let corrupt = reserve(&store, "id/junk", 1).await;
        assert!(matches!(corrupt, Err(MetadataError::Corrupt { .. })));
    }
}
