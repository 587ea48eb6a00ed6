//! Where a code comes from, and what the table says of it.

use std::fmt;

use hulse_proto::error::{ErrorKind, Reason, Reason as R};

use super::code::{Code, Exit};

/// Where a failure's code comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The command line itself.
    Ours(Code),
    /// The server.
    Servers(Reason),
}

impl Cause {
    /// The number behind `HULSE-`, stable for ever.
    pub(crate) fn number(self) -> u16 {
        match self {
            Self::Ours(code) => code.parts().0,
            Self::Servers(reason) => reason.number(),
        }
    }

    /// How the process ends.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Ours(code) => code.parts().1,
            Self::Servers(reason) => exit_of(reason),
        }
    }

    /// What it means, in one sentence.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Ours(code) => code.parts().2,
            Self::Servers(reason) => reason.meaning(),
        }
    }

    /// What to run or change next, where nobody knows better.
    pub(crate) fn next(self) -> &'static str {
        match self {
            Self::Ours(code) => code.parts().3,
            Self::Servers(reason) => NEXT[reason as usize].1,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HULSE-{}", self.number())
    }
}

fn exit_of(reason: Reason) -> Exit {
    match (reason, reason.kind()) {
        (Reason::InvalidRequest | Reason::InvalidName, _) => Exit::Usage,
        (_, ErrorKind::Invalid | ErrorKind::Internal) => Exit::Error,
        (_, ErrorKind::Denied) => Exit::Denied,
        (_, ErrorKind::NotFound) => Exit::NotFound,
        (_, ErrorKind::Exists | ErrorKind::Conflict | ErrorKind::Fenced) => Exit::Conflict,
        (_, ErrorKind::Corrupt) => Exit::Verification,
        (
            _,
            ErrorKind::NotOwner
            | ErrorKind::Overloaded
            | ErrorKind::Unavailable
            | ErrorKind::OutcomeUnknown,
        ) => Exit::Unavailable,
    }
}

/// What to do about each refusal of the server, in the order of the table of reasons: a new one does not compile without its row here.
const NEXT: [(Reason, &str); Reason::ALL.len()] = [
    (
        R::InvalidRequest,
        "change what the reason names; the command with --help shows what can be written",
    ),
    (
        R::InvalidName,
        "topics and subscriptions are called NAME or tenant/namespace/NAME: 1 or more of A-Z a-z 0-9 . _ - in each part, 249 in all, and no part . or ..",
    ),
    (
        R::BatchTooLarge,
        "send smaller records; the limits are 1 MiB per record and broker.max_batch_size per batch",
    ),
    (
        R::BatchCorrupt,
        "send it again; if it comes again, look at the client's version and the network between",
    ),
    (
        R::InvalidRecord,
        "correct the record: the reason names the rule of its topic",
    ),
    (
        R::PartitionsDecrease,
        "hulse topics copy TOPIC NEW-TOPIC -p N makes a topic with fewer partitions of the same records",
    ),
    (
        R::UnsupportedVersion,
        "use client and server of one version; hulse --version tells the client's",
    ),
    (
        R::OffsetOutOfRange,
        "hulse topics describe TOPIC shows the offsets that exist",
    ),
    (
        R::UnsupportedType,
        "--type exclusive and --type failover are there",
    ),
    (
        R::InvalidReplication,
        "hulse bookies list shows who is there; hulse topics create TOPIC -r N asks for N copies on N bookies",
    ),
    (
        R::InvalidTxnTimeout,
        "name a time-out of 1 ms to 15 minutes",
    ),
    (
        R::PermissionDenied,
        "ask the server's operator for the right that the reason names",
    ),
    (
        R::Unauthenticated,
        "ask the server's operator for credentials",
    ),
    (
        R::TopicNotFound,
        "hulse topics list; hulse topics create TOPIC",
    ),
    (
        R::PartitionNotFound,
        "hulse topics describe TOPIC shows its partitions; hulse topics partitions TOPIC N adds some",
    ),
    (R::LedgerNotFound, "hulse ledgers list"),
    (
        R::SubscriptionNotFound,
        "hulse subscriptions list; hulse subscriptions create TOPIC NAME",
    ),
    (R::BookieNotFound, "hulse bookies list"),
    (
        R::TxnNotFound,
        "look at how the transactional id is spelled: an id that ended nothing for 7 days is forgotten, and begins anew when its producer starts",
    ),
    (
        R::StagedNotFound,
        "look at how the id is spelled: an id is forgotten a day after its message was decided",
    ),
    (R::TopicExists, "hulse topics describe TOPIC"),
    (
        R::SubscriptionExists,
        "hulse subscriptions describe TOPIC NAME shows its type; use that one, or choose another name",
    ),
    (
        R::ConsumerExists,
        "hulse subscriptions describe TOPIC NAME shows who consumes; stop that one, or end it with --takeover",
    ),
    (R::TopicDeleting, "wait until it is gone; hulse topics list"),
    (
        R::TopicRecreated,
        "the topic was deleted and made again meanwhile: run the command again, it takes the new one",
    ),
    (
        R::OutOfOrderSequence,
        "start the producer again: it takes up where its records are stored; two producers must not share one identity",
    ),
    (
        R::SequenceOverlap,
        "start the producer again: it takes up where its records are stored; two producers must not share one identity",
    ),
    (
        R::NackedBefore,
        "look at the first record that was refused, then start the producer again",
    ),
    (
        R::PreconditionFailed,
        "end what the reason says stands against it, then run the command again",
    ),
    (
        R::NotOwned,
        "another consumer has the partition: hulse subscriptions describe TOPIC NAME; then run the command again",
    ),
    (
        R::CursorStale,
        "the cursor was moved meanwhile: run the command again, it goes on from the new place",
    ),
    (
        R::SubscriptionDeleting,
        "wait until it is gone: hulse subscriptions list; then create it anew",
    ),
    (
        R::TxnConflict,
        "abort the transaction and run it again: another one acknowledges the same records",
    ),
    (R::TxnAbortable, "abort the transaction and run it again"),
    (
        R::TxnStateInvalid,
        "begin a transaction before it is ended, and end it once; if both was so, report it with the reason in full",
    ),
    (
        R::OffsetMismatch,
        "read what was appended meanwhile, then decide whether to append behind it",
    ),
    (
        R::ProducerMismatch,
        "start the producer again, so that it gets its present identity",
    ),
    (
        R::StagedDecided,
        "the first decision holds; the reason says which it was",
    ),
    (
        R::PartitionMoved,
        "run the command again: it asks the new owner",
    ),
    (
        R::FencedEpoch,
        "another producer took this one's identity over: stop one of the two",
    ),
    (
        R::ConsumerFenced,
        "hulse subscriptions describe TOPIC NAME shows who took it over; --takeover takes it back",
    ),
    (
        R::MemberFenced,
        "run the command again: it joins the group anew and goes on from what is committed",
    ),
    (
        R::CoordinatorFenced,
        "run the command again: another broker coordinates the transaction by now",
    ),
    (
        R::Overloaded,
        "wait a moment and run the command again; hulse doctor says what is short",
    ),
    (
        R::BacklogExceeded,
        "hulse subscriptions list TOPIC shows who is behind: let it consume, pass over its backlog with hulse subscriptions clear TOPIC NAME, or allow more with hulse topics update TOPIC --backlog-size SIZE",
    ),
    (
        R::PartitionLoading,
        "wait a moment and run the command again",
    ),
    (
        R::MetadataUnavailable,
        "look at the server's log and /readyz, then run the command again",
    ),
    (
        R::NotEnoughBookies,
        "look at the server's log and /readyz, then run the command again",
    ),
    (
        R::StorageUnavailable,
        "look at the server's log and /readyz, then run the command again",
    ),
    (
        R::ShuttingDown,
        "start the server again, or name another one with --server HOST:PORT",
    ),
    (
        R::StorageFull,
        "enlarge the disk (df DATA-DIR); or delete topics, or shorten their retention: hulse topics update. Records are taken again by themselves",
    ),
    (R::TxnConcurrent, "run the command again"),
    (
        R::CoordinatorLoading,
        "wait a moment and run the command again",
    ),
    (
        R::OffsetUnstable,
        "wait until the transaction is ended and run the command again",
    ),
    (
        R::StorageTimeout,
        "look whether it took effect, then run the command again; hulse doctor says how the server is",
    ),
    (
        R::StorageUnknown,
        "look whether it took effect, then run the command again; hulse doctor says how the server is",
    ),
    (
        R::MetadataUnknown,
        "look whether it took effect, then run the command again; hulse doctor says how the server is",
    ),
    (
        R::DataDamaged,
        "hulse ledgers list; hulse ledgers accept-loss LEDGER gives up what is damaged",
    ),
    (
        R::Internal,
        "this is a bug in hulse; please report it with the server's log",
    ),
];

const _: () = {
    let mut at = 0;
    while at < NEXT.len() {
        assert!(
            NEXT[at].0 as usize == at,
            "the rows stand in the order of the table of reasons"
        );
        at += 1;
    }
};
