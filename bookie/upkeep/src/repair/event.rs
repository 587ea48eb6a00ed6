//! What goes into a repair and what comes out.

use std::ops::Range;

use bookie_metadata::Revision;
use hulse_proto::bookie::{BookieError, Inventory};
use hulse_proto::entry::Entry;
use hulse_proto::id::{EntryId, LedgerId, NodeName};
use hulse_proto::ledger::{LedgerMetadata, Member};
use hulse_proto::mutant::Mutation;

/// What is to be done, as an audit found it. It is judged anew before anything is written (storage.md X1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairTask {
    /// Of this ledger,
    pub ledger: LedgerId,
    /// in the fragment that begins here,
    pub first: EntryId,
    /// the member at this position
    pub position: usize,
    /// which is this one,
    pub old: Member,
    /// is replaced by this one. The same: it is only given what it lacks.
    pub new: Member,
    /// What it lacks, when it is not replaced.
    pub lacking: Vec<Range<u64>>,
}

impl RepairTask {
    /// True when the member stays.
    pub fn fills(&self) -> bool {
        self.old == self.new
    }
}

/// Bounds of one repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairLimits {
    /// Payload bytes that were read and are not confirmed by the target.
    pub flying_bytes_max: usize,
    /// How often one copy is sent to a target that is busy or does not answer.
    pub copy_tries_max: u32,
    /// How often the last change is tried when others change the same ledger.
    pub swap_tries_max: u32,
    /// For tests: a rule that is switched off.
    pub mutation: Mutation,
}

impl Default for RepairLimits {
    fn default() -> Self {
        Self {
            flying_bytes_max: 16 << 20,
            copy_tries_max: 8,
            swap_tries_max: 5,
            mutation: Mutation::default(),
        }
    }
}

/// What happened.
#[derive(Debug)]
pub enum RepairEvent {
    /// The ledger's key was read, linearizably; with a fresh nonce.
    Looked(Option<Box<(LedgerMetadata, Revision)>>, [u8; 16]),
    /// The change was made, or another of the same ledger since.
    Committed(Box<(LedgerMetadata, Revision)>),
    /// Others were faster: the change was not and will not be made.
    Beaten,
    /// Metadata did not answer in time.
    Silent(String),
    /// Entries from the one asked for on, or why there are none.
    Read {
        /// Who was asked.
        member: Member,
        /// From where on.
        first: EntryId,
        /// What it answered.
        answer: Result<Vec<Entry>, BookieError>,
    },
    /// A copy was stored, or not.
    Copied {
        /// Which.
        entry: EntryId,
        /// What the target answered.
        answer: Result<(), BookieError>,
    },
    /// What the target holds of the range.
    Proved(Result<Inventory, BookieError>),
}

/// What the shell is to do.
#[derive(Debug)]
pub enum RepairEffect {
    /// Read the ledger's key.
    Look,
    /// Make this change, compared with this version.
    Propose(Box<LedgerMetadata>, Revision),
    /// Read entries of `first..end` from a member; at least one.
    Read {
        /// Whom to ask.
        member: Member,
        /// The first.
        first: EntryId,
        /// Exclusive.
        end: EntryId,
    },
    /// Store a copy at the target.
    Copy {
        /// The entry.
        entry: Entry,
        /// Exclusive end of what may be copied.
        bound: EntryId,
        /// It was sent before: wait a little.
        again: bool,
    },
    /// Ask the target what it holds of `first..end`, with digests.
    Prove {
        /// The first.
        first: EntryId,
        /// Exclusive.
        end: EntryId,
    },
    /// It is over.
    End(RepairEnd),
}

/// How a repair ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairEnd {
    /// The member holds everything, or another one does and stands in its place.
    Done {
        /// Copies that were made.
        entries: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// There is nothing to do any more: the ledger is going or gone, or somebody else did it.
    Needless,
    /// Nothing was swapped.
    Failed(RepairFailure),
}

/// Why nothing was swapped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RepairFailure {
    /// The ledger is being recovered, or changed under this repair again and again.
    #[error("the ledger changes meanwhile")]
    Changing,
    /// No member has a good copy (storage.md X5): somebody must look, trying again does not help.
    #[error("no bookie has a good copy of entry {entry}: {}", told(.members))]
    Unreadable {
        /// Which.
        entry: EntryId,
        /// What each said.
        members: Vec<(NodeName, BookieError)>,
    },
    /// Members that may have a copy do not answer.
    #[error("entry {entry} cannot be read now: {}", told(.members))]
    Unavailable {
        /// Which.
        entry: EntryId,
        /// What each said.
        members: Vec<(NodeName, BookieError)>,
    },
    /// The target takes no copies.
    #[error("{bookie} takes no copy: {error}")]
    Target {
        /// It.
        bookie: NodeName,
        /// What it said.
        error: BookieError,
    },
    /// The target confirmed every copy, and does not hold the same.
    #[error("{bookie} does not hold what was copied to it")]
    Unproven {
        /// It.
        bookie: NodeName,
    },
    /// Metadata did not answer.
    #[error("metadata: {0}")]
    Metadata(String),
}

fn told(members: &[(NodeName, BookieError)]) -> String {
    let words = members
        .iter()
        .map(|(name, error)| format!("{name}: {error}"));
    let words: Vec<String> = words.collect();
    match words.is_empty() {
        true => "no other member is left".to_owned(),
        false => words.join("; "),
    }
}
