//! One of several processes at a time: a key that is bound to a lease.
//!
//! An election is for work of which two at once would do no harm and one is enough: what is done still compares what it was decided
//! from. Nothing rests on the lease alone (ARCHITECTURE D6).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::{Compare, LeaseId, MetadataError, MetadataStore, Op, Txn, TxnOutcome};

/// A renewal comes so many times within the time of the lease.
const RENEWALS: u32 = 3;
/// Longest wait for the word that a seat is given back; without an answer its lease ends by itself.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// What processes are elected for.
#[derive(Debug, Clone, Copy)]
pub struct Election {
    /// Who has this key is elected; its value is their name.
    pub key: &'static str,
    /// How long others wait for one that died.
    pub lease: Duration,
}

/// The seat of the one that is elected.
#[derive(Debug)]
pub struct Seat {
    lease: LeaseId,
    lasts: Duration,
    /// Before the last renewal that was answered was asked for.
    renewed: Mutex<Instant>,
}

impl Election {
    /// Takes the seat if nobody has it.
    ///
    /// # Errors
    /// Of the store. A lease that was granted meanwhile ends by itself.
    pub async fn try_win(
        &self,
        store: &dyn MetadataStore,
        name: &str,
    ) -> Result<Option<Seat>, MetadataError> {
        if store.get(self.key).await?.is_some() {
            return Ok(None);
        }
        let asked = Instant::now();
        let lease = store.grant_lease(self.lease).await?;
        let txn = Txn {
            compares: vec![Compare::Absent(self.key.to_owned())],
            ops: vec![Op::Put {
                key: self.key.to_owned(),
                value: name.to_owned().into(),
                lease: Some(lease),
            }],
        };
        match store.txn(txn).await? {
            TxnOutcome::Committed { .. } => Ok(Some(Seat {
                lease,
                lasts: self.lease,
                renewed: Mutex::new(asked),
            })),
            TxnOutcome::Conflict { .. } => {
                store.end_lease(lease).await?;
                Ok(None)
            }
        }
    }

    /// The name of the one that is elected.
    ///
    /// # Errors
    /// Of the store.
    pub async fn elected(
        &self,
        store: &dyn MetadataStore,
    ) -> Result<Option<String>, MetadataError> {
        let found = store.get(self.key).await?;
        Ok(found.and_then(|found| String::from_utf8(found.value.to_vec()).ok()))
    }
}

impl Seat {
    /// Renews until the store says that the seat is lost; its silence ends nothing.
    pub async fn keep(&self, store: &dyn MetadataStore) {
        loop {
            sleep(self.lasts / RENEWALS).await;
            let asked = Instant::now();
            match store.renew_lease(self.lease).await {
                Ok(()) => *self.lock() = asked,
                Err(MetadataError::LeaseEnded(_)) => return,
                Err(_) => {}
            }
        }
    }

    /// Whether nobody else can have been elected yet: false of a process that was frozen, and of one that metadata do not answer, until a
    /// renewal is answered.
    pub fn stands(&self) -> bool {
        self.lock().elapsed() < self.lasts
    }

    /// Gives it back, so that another one need not wait for the end of the lease.
    pub async fn leave(&self, store: &dyn MetadataStore) {
        // Without an answer it ends by itself.
        drop(timeout(LEAVE_MAX, store.end_lease(self.lease)).await);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    const ELECTION: Election = Election {
        key: "test/elected",
        lease: Duration::from_secs(6),
    };

    #[tokio::test(start_paused = true)]
    async fn one_is_elected_and_another_within_the_lease_when_it_dies() {
        let store = MemoryStore::new();
        let first = ELECTION.try_win(&store, "a").await.unwrap().unwrap();
        assert!(ELECTION.try_win(&store, "b").await.unwrap().is_none());
        let kept = tokio::time::timeout(Duration::from_secs(60), first.keep(&store));
        assert!(kept.await.is_err(), "it is renewed");
        assert_eq!(
            ELECTION.elected(&store).await.unwrap().as_deref(),
            Some("a")
        );
        assert!(first.stands());
        // Nobody renews it any more.
        let died = Instant::now();
        let second = loop {
            if let Some(won) = ELECTION.try_win(&store, "b").await.unwrap() {
                break won;
            }
            sleep(Duration::from_millis(100)).await;
        };
        let waited = died.elapsed();
        assert!(
            waited <= ELECTION.lease + Duration::from_millis(200),
            "{waited:?}"
        );
        assert!(
            !first.stands(),
            "one that wakes knows without asking that it may have lost"
        );
        first.keep(&store).await;
        second.leave(&store).await;
        assert_eq!(ELECTION.elected(&store).await.unwrap(), None);
    }
}
