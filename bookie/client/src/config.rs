//! What the ledger client is told once at its start.

use std::time::Duration;

use hulse_proto::ledger::Quorums;
use hulse_proto::mutant::Mutation;

/// Limits and times of the ledger client. Values only; immutable after start.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// E, Qw, Qa of new ledgers (the cell record's).
    pub quorums: Quorums,
    /// An entry not confirmed this long after it was appended ends the writer with an unknown outcome.
    pub add_timeout: Duration,
    /// A single add not answered for this long is sent again.
    pub answer_timeout: Duration,
    /// A read, fence or delete not answered for this long counts as not answered.
    pub read_timeout: Duration,
    /// First wait before something is sent again; doubles up to [`ClientConfig::retry_max`].
    pub retry_initial: Duration,
    /// Longest wait before something is sent again.
    pub retry_max: Duration,
    /// Unconfirmed entries per writer and permit class (storage.md W2).
    pub inflight_entries_max: usize,
    /// Unconfirmed payload bytes per writer and permit class (storage.md W2).
    pub inflight_bytes_max: usize,
    /// Confirmed entries that lack a copy are kept for this long at most, and a member that takes no adds for this long is
    /// replaced (storage.md W7, W12).
    pub late_time_max: Duration,
    /// Confirmed payload bytes kept for members that lack them (storage.md W12).
    pub late_bytes_max: usize,
    /// Entries a recovery reads ahead of its decision (storage.md R13).
    pub recovery_read_ahead: usize,
    /// Payload bytes a recovery holds at most, give or take one entry per position (storage.md R13).
    pub recovery_bytes_max: usize,
    /// One recovery attempt gives up after this long (storage.md R6).
    pub recovery_deadline: Duration,
    /// Operations that need metadata give up after this long; closing and rolling wait without limit (storage.md W15).
    pub metadata_deadline: Duration,
    /// Metadata must have answered within this time before a roll starts (storage.md, amendment to W15).
    pub metadata_fresh: Duration,
    /// An ack quorum must be out of reach for this long because members are read-only, before a ledger is said to be full
    /// (storage.md D1).
    pub full_patience: Duration,
    /// A ledger of so many fragments is worn: its owner should roll it (storage.md W15).
    pub worn_fragments: usize,
    /// So is one whose ensemble changed this often within a minute.
    pub worn_changes: usize,
    /// Deleting gives up (and can be resumed) after this long.
    pub delete_deadline: Duration,
    /// Ledger numbers reserved with one transaction.
    pub id_block: u64,
    /// For tests: a rule that is switched off.
    pub mutation: Mutation,
}

impl ClientConfig {
    /// Defaults for these quorums.
    pub fn new(quorums: Quorums) -> Self {
        Self {
            quorums,
            add_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(3),
            read_timeout: Duration::from_secs(5),
            retry_initial: Duration::from_millis(5),
            retry_max: Duration::from_millis(500),
            inflight_entries_max: 1024,
            inflight_bytes_max: 64 << 20,
            late_time_max: Duration::from_secs(2),
            late_bytes_max: 64 << 20,
            recovery_read_ahead: 16,
            recovery_bytes_max: 32 << 20,
            recovery_deadline: Duration::from_secs(20),
            metadata_deadline: Duration::from_secs(10),
            metadata_fresh: Duration::from_secs(1),
            full_patience: Duration::from_millis(500),
            worn_fragments: 16,
            worn_changes: 8,
            delete_deadline: Duration::from_secs(20),
            id_block: 16,
            mutation: Mutation::default(),
        }
    }
}
