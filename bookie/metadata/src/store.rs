//! The trait and its values.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;

use hulse_proto::error::ErrorKind;

/// A future that owns its captures for `'a`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Events of a watch, in revision order.
pub type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchEvent, MetadataError>> + Send>>;

/// Most compares plus operations in one transaction (storage.md, amendment "who holds what").
pub const TXN_OPS_MAX: usize = 100;
/// Longest value, bytes (storage.md Z2).
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// Number of a committed transaction; grows by at least one with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

/// A lease: keys bound to it vanish when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// A key's value and the revision that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// Revision of the last put of this key.
    pub version: Revision,
    /// The lease it is bound to.
    pub lease: Option<LeaseId>,
}

/// A condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key does not exist.
    Absent(String),
    /// The key exists and was last written by this revision.
    Version(String, Revision),
    /// The key exists.
    Exists(String),
}

impl Compare {
    /// The compared key.
    pub fn key(&self) -> &str {
        match self {
            Self::Absent(key) | Self::Version(key, _) | Self::Exists(key) => key,
        }
    }
}

/// An effect of a transaction. At most one per key and transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes a value.
    Put {
        /// Key.
        key: String,
        /// Value.
        value: Bytes,
        /// Bind to this lease; `None` also unbinds.
        lease: Option<LeaseId>,
    },
    /// Removes a key; one that does not exist is fine.
    Delete {
        /// Key.
        key: String,
    },
}

impl Op {
    /// The written key.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    /// A put without a lease.
    pub fn put(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self::Put {
            key: key.into(),
            value: value.into(),
            lease: None,
        }
    }
}

/// Compares and effects that happen together or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// All must hold.
    pub compares: Vec<Compare>,
    /// All are applied.
    pub ops: Vec<Op>,
}

impl Txn {
    /// Adds the compares and effects of another one.
    pub fn extend(&mut self, other: Self) {
        self.compares.extend(other.compares);
        self.ops.extend(other.ops);
    }
}

/// What became of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnOutcome {
    /// All compares held; the effects are durable.
    Committed {
        /// Version of every key put by it.
        revision: Revision,
    },
    /// A compare did not hold; nothing was changed.
    Conflict {
        /// Each compared key as it is, in the order of the compares.
        current: Vec<Option<Versioned>>,
    },
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    /// Keys that begin with this.
    pub prefix: String,
    /// Only keys after this one.
    pub after: Option<String>,
    /// At most this many, at least 1.
    pub limit: usize,
    /// As of this revision; `None`: now.
    pub at: Option<Revision>,
}

/// Part of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In key order.
    pub items: Vec<Versioned>,
    /// The revision that the page shows; pin the next page to it.
    pub revision: Revision,
    /// There is more after the last item.
    pub more: bool,
}

/// A change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// It was written.
    Put(Versioned),
    /// It was removed, or its lease ended.
    Deleted {
        /// Key.
        key: String,
        /// When.
        revision: Revision,
    },
}

/// Why the store did not answer as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// It does not answer; nothing was changed. Retry.
    #[error("metadata store is unavailable: {why}")]
    Unavailable {
        /// Words for a person.
        why: String,
    },
    /// A transaction was sent and not answered: it may have been or may yet be applied, but not after a later one that is bound to no
    /// version was sent through the same store ([`MetadataStore::txn`]).
    #[error("outcome of the metadata transaction is unknown: {why}")]
    OutcomeUnknown {
        /// Words for a person.
        why: String,
    },
    /// The asked revision is no longer kept: list again.
    #[error("revision {asked} is compacted, the oldest kept is {oldest}")]
    Compacted {
        /// Asked.
        asked: u64,
        /// Oldest kept.
        oldest: u64,
    },
    /// The lease ended (or never was): everything bound to it is gone.
    #[error("lease {0} has ended")]
    LeaseEnded(u64),
    /// The request breaks a limit: too many operations, too long a value, two operations on one key, an empty or non-ASCII key.
    #[error("metadata request is invalid: {why}")]
    Invalid {
        /// Words for a person.
        why: String,
    },
    /// What is stored cannot be read.
    #[error("metadata store is damaged: {why}")]
    Corrupt {
        /// Words for a person.
        why: String,
    },
}

impl MetadataError {
    /// What the caller should do, in the words all layers share.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
            Self::Compacted { .. } | Self::LeaseEnded(_) => ErrorKind::Conflict,
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
        }
    }
}

/// The metadata store (storage.md Z1).
///
/// All methods are cancel-safe in the sense that dropping the future of a [`MetadataStore::txn`] leaves its outcome unknown.
pub trait MetadataStore: Send + Sync + 'static {
    /// Reads one key, linearizably.
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>>;

    /// Applies a transaction.
    ///
    /// One whose outcome is unknown (its future was dropped, or [`MetadataError::OutcomeUnknown`]) may take effect later, if its compares
    /// hold then. Trying again is safe all the same, with the same compares and the same effects:
    /// - A transaction is bound to a version if it writes a key whose version it compares. Of all that are bound to one version at most one
    ///   takes effect, for a version never comes back.
    /// - One that is not ([`Compare::Absent`], [`Compare::Exists`], no compare) is sent only when no earlier one of this store that is not
    ///   can take effect any more. So after the answer to the second try, the first one is not waiting somewhere until the key is absent
    ///   again. While the store cannot make sure of that, it answers `Unavailable` and sends nothing.
    ///
    /// That holds for one store and its clones; other processes see a transaction of unknown outcome until it is settled, which a store
    /// begins by itself at once.
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>>;

    /// Reads one page of a prefix, linearizably when not pinned.
    ///
    /// # Errors
    /// [`MetadataError::Compacted`] when the pinned revision is no longer kept.
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>>;

    /// Streams every change of keys under `prefix` with a revision above `after`, then live ones. A hint: every decision re-reads
    /// (storage.md Z4). The stream ends after an error; `Compacted` means list again.
    fn watch(&self, prefix: &str, after: Revision) -> WatchStream;

    /// Makes a lease that ends unless renewed within `ttl`.
    fn grant_lease(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, MetadataError>>;

    /// Renews a lease for its whole `ttl`.
    ///
    /// # Errors
    /// [`MetadataError::LeaseEnded`] is the only answer that means it is lost.
    fn renew_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>>;

    /// Ends a lease now; its keys vanish in one revision. An ended one is fine.
    fn end_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>>;
}

/// Reads all keys of a prefix at one revision, page by page.
///
/// # Errors
/// Those of [`MetadataStore::list`]; a compaction in between starts over up to three times.
pub async fn list_all(
    store: &dyn MetadataStore,
    prefix: &str,
) -> Result<Vec<Versioned>, MetadataError> {
    let mut tries = 0;
    loop {
        match list_pinned(store, prefix).await {
            Err(MetadataError::Compacted { .. }) if tries < 3 => tries += 1,
            other => return other,
        }
    }
}

async fn list_pinned(
    store: &dyn MetadataStore,
    prefix: &str,
) -> Result<Vec<Versioned>, MetadataError> {
    let mut request = ListRequest {
        prefix: prefix.to_owned(),
        after: None,
        limit: 500,
        at: None,
    };
    let mut items = Vec::new();
    loop {
        let page = store.list(request.clone()).await?;
        let last = page.items.last().map(|item| item.key.clone());
        items.extend(page.items);
        match last {
            Some(last) if page.more => {
                request.after = Some(last);
                request.at = Some(page.revision);
            }
            _ => return Ok(items),
        }
    }
}
