//! Messages under way. Their debug text is their identity: two equal ones are one.

use bookie_metadata::{MetadataError, Txn, TxnOutcome, Versioned};
use hulse_proto::bookie::BookieError;
use hulse_proto::ledger::{LedgerMetadata, Member};

use crate::recovery::{BookieAsk, RecoveryEvent};
use crate::writer::{AddCall, AddTag};

/// Who asks metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asker {
    Change,
    Close,
    Check,
    Recoverer(usize),
}

/// One message.
#[derive(Debug)]
pub(super) enum Packet {
    Add(AddCall),
    /// First contact: metadata were read, the add waits for it (B2).
    Verified(AddCall, Option<Box<LedgerMetadata>>),
    AddAnswer(AddTag, Result<(), BookieError>),
    Ask {
        from: usize,
        position: usize,
        member: Member,
        ask: BookieAsk,
    },
    AskAnswer(usize, RecoveryEvent),
    Survey,
    Get(Asker, String),
    GetAnswer(Asker, Result<Option<Versioned>, MetadataError>),
    /// `told`: its asker was already told that the outcome is unknown.
    Txn {
        asker: Asker,
        txn: Txn,
        told: bool,
    },
    TxnAnswer(Asker, Result<TxnOutcome, MetadataError>),
}
