//! Calls and answers as values, so that the network can lose, delay and repeat them.

use hulse_proto::bookie::{
    AddRequest, Address, BookieError, EntryHead, FenceAnswer, FenceRequest, Inventory,
    InventoryRequest, Origin, ReadRequest, RecoveryReadAnswer, RecoveryReadRequest, StoredEntry,
};
use hulse_proto::id::{EntryId, LedgerId};

use crate::network::Kind;

/// What is asked of a bookie.
#[derive(Debug, Clone)]
pub enum Request {
    /// `BookieCalls::add`.
    Add(AddRequest),
    /// `BookieCalls::fence`.
    Fence(FenceRequest),
    /// `BookieCalls::recovery_read`.
    RecoveryRead(RecoveryReadRequest),
    /// `BookieCalls::read`.
    Read(ReadRequest),
    /// `BookieCalls::read_heads`.
    Heads(ReadRequest),
    /// `BookieCalls::delete`.
    Delete(Address),
    /// `BookieCalls::inventory`.
    Inventory(InventoryRequest),
}

/// What a bookie answers.
#[derive(Debug, Clone)]
pub enum Reply {
    /// To an add.
    Add(Result<(), BookieError>),
    /// To a fence.
    Fence(Result<FenceAnswer, BookieError>),
    /// To a recovery read.
    RecoveryRead(Result<RecoveryReadAnswer, BookieError>),
    /// To a read.
    Read(Result<Vec<StoredEntry>, BookieError>),
    /// To a read of heads.
    Heads(Result<Vec<EntryHead>, BookieError>),
    /// To a deletion.
    Delete(Result<(), BookieError>),
    /// To an inventory.
    Inventory(Result<Inventory, BookieError>),
}

impl Request {
    /// What kind of message it makes.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Add(add) if add.origin == Origin::Normal => Kind::Add,
            Self::Add(_) => Kind::WriteBack,
            Self::Fence(_) => Kind::Fence,
            Self::RecoveryRead(_) => Kind::RecoveryRead,
            Self::Read(_) | Self::Heads(_) | Self::Inventory(_) => Kind::Read,
            Self::Delete(_) => Kind::Delete,
        }
    }

    /// Of which ledger.
    pub fn ledger(&self) -> LedgerId {
        match self {
            Self::Add(add) => add.to.ledger,
            Self::Fence(fence) => fence.to.ledger,
            Self::RecoveryRead(read) => read.to.ledger,
            Self::Read(read) | Self::Heads(read) => read.to.ledger,
            Self::Delete(to) => to.ledger,
            Self::Inventory(asked) => asked.to.ledger,
        }
    }

    /// Of which entry, where there is one.
    pub fn entry(&self) -> Option<EntryId> {
        match self {
            Self::Add(add) => Some(add.entry.header().entry),
            Self::RecoveryRead(read) => Some(read.entry),
            Self::Read(read) | Self::Heads(read) => Some(read.first),
            Self::Fence(_) | Self::Delete(_) | Self::Inventory(_) => None,
        }
    }

    /// The answer of this kind that says why not.
    pub fn refuse(&self, error: BookieError) -> Reply {
        match self {
            Self::Add(_) => Reply::Add(Err(error)),
            Self::Fence(_) => Reply::Fence(Err(error)),
            Self::RecoveryRead(_) => Reply::RecoveryRead(Err(error)),
            Self::Read(_) => Reply::Read(Err(error)),
            Self::Heads(_) => Reply::Heads(Err(error)),
            Self::Delete(_) => Reply::Delete(Err(error)),
            Self::Inventory(_) => Reply::Inventory(Err(error)),
        }
    }
}

impl Reply {
    /// One word or so for the trace.
    pub fn summary(&self) -> String {
        match self {
            Self::Add(Ok(())) | Self::Delete(Ok(())) => "ok".to_owned(),
            Self::Fence(Ok(found)) => {
                format!("confirmed {} held {}", found.confirmed_end, found.held_end)
            }
            Self::RecoveryRead(Ok(RecoveryReadAnswer::Positive(_))) => "positive".to_owned(),
            Self::RecoveryRead(Ok(RecoveryReadAnswer::Negative { .. })) => "negative".to_owned(),
            Self::Read(Ok(entries)) => format!("{} entries", entries.len()),
            Self::Heads(Ok(entries)) => format!("{} heads", entries.len()),
            Self::Inventory(Ok(held)) => format!("{} ledgers", held.ledgers.len()),
            Self::Add(Err(error))
            | Self::Delete(Err(error))
            | Self::Fence(Err(error))
            | Self::RecoveryRead(Err(error))
            | Self::Read(Err(error))
            | Self::Heads(Err(error))
            | Self::Inventory(Err(error)) => error.to_string(),
        }
    }
}
