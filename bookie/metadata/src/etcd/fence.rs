//! The fence: what a transaction compares with, so that it can no longer commit once it was given up.
//!
//! A member that is frozen keeps what it was asked for, and does it when it wakes: minutes after its caller has given it up, tried again,
//! and undone what the second try did. A compare with a version is immune, for that version never comes back. [`Compare::Absent`],
//! [`Compare::Exists`] and no compare at all are not: the key may be absent again.
//!
//! So every such transaction also compares the revision of one key that only this store writes, the fence. Whenever one of them ends
//! without an answer, or its future is dropped, the fence is written anew before the next one is sent.
//!
//! # Invariants
//! 1. While a transaction that compared fence `f` may still commit, `open >= f`; none that needs the fence is sent until `known > open`.
//! 2. `known` is a revision that did write the fence: once it is above `f`, whatever compares `f` was done before that or never will be.
//! 3. The fence is never removed and has no lease: a key that is gone has the revision 0 again, which the first transactions compare.
//! 4. Nothing is written before the first transaction without an answer. A process that had one leaves one small key behind.
//!
//! An etcd that was restored from an older copy shows the fence at a revision below the known one, or not at all. What it shows stands from
//! then on, and the fence is written anew before anything compares it: what was sent before the restore compares what is not there any more.
//!
//! An older write of the fence that comes late only moves it once more: who compared the one before is told of a conflict, which shows where
//! the fence stands, and is sent again by the store. That is no guess, because a conflict changes nothing.

use std::sync::{Arc, Weak};
use std::time::Duration;

use hulse_proto::wire::etcd::{self, kv_client::KvClient};
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::keyspace::Keyspace;
use super::links::Failure;
use super::store::Inner;
use crate::store::{Compare, MetadataError, Revision, Txn};

/// How often one transaction is sent again because of the fence alone: each time, somebody else was without an answer meanwhile.
pub(super) const TRIES_MAX: usize = 16;
/// Waits between two rounds of writing the fence, doubled from the first to the second: it goes on until etcd answers.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The fence of one store.
pub(super) struct Fence {
    key: Vec<u8>,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The newest revision that is known to have written it; 0: none.
    known: i64,
    /// The highest one that was compared by a transaction without an answer.
    open: Option<i64>,
    /// Somebody writes it anew.
    mending: bool,
}

impl State {
    fn is_settled(&self) -> bool {
        self.open.is_none_or(|open| self.known > open)
    }
}

/// True when the transaction could commit late, after a later one has taken its place: it changes something, and writes no key whose
/// version it compares.
pub(super) fn is_needed(txn: &Txn) -> bool {
    !txn.ops.is_empty() && bound(txn).is_none()
}

/// A key that the transaction writes, and the version of it that it compares.
pub(super) fn bound(txn: &Txn) -> Option<(&str, Revision)> {
    let writes = |key: &str| txn.ops.iter().any(|op| op.key() == key);
    txn.compares.iter().find_map(|compare| match compare {
        Compare::Version(key, version) if writes(key) => Some((key.as_str(), *version)),
        _ => None,
    })
}

impl Fence {
    /// A fence that nobody else has.
    ///
    /// # Errors
    /// `Unavailable` when the system has no random numbers.
    pub(super) fn new(keys: &Keyspace) -> Result<Self, MetadataError> {
        let mut bytes = [0; 16];
        OsRng
            .try_fill_bytes(&mut bytes)
            .map_err(|error| MetadataError::Unavailable {
                why: format!("the system has no random numbers: {error}"),
            })?;
        let name = format!("fence/{:032x}", u128::from_be_bytes(bytes));
        Ok(Self {
            key: keys.inside(&name),
            state: watch::Sender::new(State::default()),
        })
    }

    /// Its key as etcd has it.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Takes in the revision at which etcd has shown it.
    pub(super) fn learn(&self, revision: i64) {
        self.state.send_if_modified(|state| {
            let newer = revision > state.known;
            state.known = state.known.max(revision);
            newer
        });
    }

    /// Takes in how a conflict has shown it to a transaction that compared `at`.
    pub(super) fn conflicted(&self, at: i64, found: i64) {
        if found >= at {
            return self.learn(found);
        }
        self.state.send_if_modified(|state| {
            // Unless somebody has found that out before.
            let back = state.known == at;
            if back {
                tracing::warn!(
                    at,
                    found,
                    "etcd shows an older revision than before: was it restored?"
                );
                state.known = found;
                state.open = Some(found);
            }
            back
        });
    }

    /// Takes in the revision of a write that was sent while `open` stood. Revisions only grow, unless etcd was restored.
    fn written(&self, revision: i64, open: Option<i64>) {
        if open.is_none_or(|open| revision > open) {
            return self.learn(revision);
        }
        self.state.send_modify(|state| {
            state.known = revision;
            state.open = state.open.filter(|now| Some(*now) != open);
        });
    }

    /// A transaction that compared `at` has no answer.
    fn open(&self, at: i64) {
        self.state
            .send_modify(|state| state.open = state.open.max(Some(at)));
    }
}

/// A transaction on its way. Dropped without [`Sent::answered`], it may commit late, and the fence is moved.
pub(super) struct Sent<'a> {
    etcd: &'a Arc<Inner>,
    /// The revision that it compares.
    pub(super) at: i64,
    open: bool,
}

impl<'a> Sent<'a> {
    /// Waits until no earlier transaction can commit late, then says what the next one is to compare.
    ///
    /// # Errors
    /// `Unavailable` when that is not so at `until`: nothing was sent.
    pub(super) async fn begin(etcd: &'a Arc<Inner>, until: Instant) -> Result<Self, MetadataError> {
        let Some(at) = settled(etcd, until).await else {
            return Err(MetadataError::Unavailable {
                why: "etcd: an earlier transaction without an answer may still commit, and etcd does not answer what would end that"
                    .to_owned(),
            });
        };
        let open = true;
        Ok(Self { etcd, at, open })
    }

    /// What becomes of it is known.
    pub(super) fn answered(mut self) {
        self.open = false;
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if self.open {
            self.etcd.fence.open(self.at);
            mend(self.etcd);
        }
    }
}

/// The fence as it stands once no transaction can commit late; `None`: not until then.
pub(super) async fn settled(etcd: &Arc<Inner>, until: Instant) -> Option<i64> {
    mend(etcd);
    let mut state = etcd.fence.state.subscribe();
    let settled = timeout_at(until, state.wait_for(State::is_settled)).await;
    settled.ok()?.ok().map(|state| state.known)
}

/// Has the fence written anew, if it is to be and nobody does it.
fn mend(etcd: &Arc<Inner>) {
    // Without a runtime there is nobody to do it; the next transaction begins it.
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    let mut begins = false;
    etcd.fence.state.send_if_modified(|state| {
        begins = !state.is_settled() && !state.mending;
        state.mending |= begins;
        false
    });
    if begins {
        let mending = Mending {
            etcd: Arc::downgrade(etcd),
            over: false,
        };
        runtime.spawn(mending.run());
    }
}

/// Writes the fence until etcd answers. Ends with its store.
struct Mending {
    etcd: Weak<Inner>,
    over: bool,
}

impl Mending {
    async fn run(mut self) {
        let mut pause = PAUSES.0;
        while let Some(etcd) = self.etcd.upgrade() {
            if self.is_over(&etcd) {
                return;
            }
            let moved = write(&etcd).await;
            drop(etcd);
            if let Err(failure) = moved {
                tracing::debug!(?failure, "the fence is not written yet");
                sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }

    /// In one step with giving up the task: who opens the fence after this finds that nobody mends it.
    fn is_over(&mut self, etcd: &Inner) -> bool {
        etcd.fence.state.send_if_modified(|state| {
            self.over = state.is_settled();
            state.mending = !self.over;
            false
        });
        self.over
    }
}

impl Drop for Mending {
    fn drop(&mut self) {
        if let (false, Some(etcd)) = (self.over, self.etcd.upgrade()) {
            etcd.fence.state.send_modify(|state| state.mending = false);
        }
    }
}

async fn write(etcd: &Inner) -> Result<(), Failure> {
    let put = etcd::PutRequest {
        key: etcd.fence.key.clone().into(),
        ..etcd::PutRequest::default()
    };
    let request = etcd::TxnRequest {
        success: vec![etcd::RequestOp {
            request: Some(etcd::request_op::Request::RequestPut(put)),
        }],
        ..etcd::TxnRequest::default()
    };
    let call = |channel| {
        let request = request.clone();
        async move { KvClient::new(channel).txn(request).await }
    };
    let open = etcd.fence.state.borrow().open;
    let answer = etcd.links.repeat(call).await?;
    let revision = answer.header.unwrap_or_default().revision;
    etcd.fence.written(revision, open);
    Ok(())
}

#[cfg(test)]
impl Fence {
    /// As if a transaction that compares the newest revision were dropped.
    pub(super) fn open_newest(etcd: &Arc<Inner>) {
        let known = etcd.fence.state.borrow().known;
        etcd.fence.open(known);
        mend(etcd);
    }

    /// As if etcd had been restored from a copy that is so many revisions older. `open`: while a transaction was without an answer.
    pub(super) fn as_before_a_restore(&self, revisions: i64, open: bool) {
        self.state.send_modify(|state| {
            state.known += revisions;
            state.open = open.then_some(state.known);
        });
    }

    /// The newest revision that is known.
    pub(super) fn known(&self) -> i64 {
        self.state.borrow().known
    }
}
