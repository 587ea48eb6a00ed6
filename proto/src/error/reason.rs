//! The table of reasons.

use tonic::Code;

use super::Fate;

/// What the caller does about an error. Adding a kind needs a decision record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request can never succeed; change it.
    Invalid,
    /// Not allowed; ask an operator.
    Denied,
    /// The object does not exist.
    NotFound,
    /// The object exists already.
    Exists,
    /// The state forbids it now; look, then decide.
    Conflict,
    /// Another broker serves it; look it up again.
    NotOwner,
    /// A newer incarnation of the caller took over; stop.
    Fenced,
    /// Too much at once; slow down and retry.
    Overloaded,
    /// Not possible now, nothing was applied; retry.
    Unavailable,
    /// May have been applied; retry with the same identity.
    OutcomeUnknown,
    /// Stored data are damaged; an operator must look.
    Corrupt,
    /// A bug in Hulse; report it.
    Internal,
}

macro_rules! reasons {
    ($(#[doc = $meaning:literal] $variant:ident = $name:literal, $number:literal, $kind:ident, $code:ident, $fate:ident;)*) => {
        /// Why something was refused or failed. Closed: servers and clients share this table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(#[doc = $meaning] $variant,)*
        }

        impl Reason {
            /// All of them, in table order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// What it means, in one sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning.trim_ascii(),)* }
            }

            /// The name on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The number of "HULSE-1234", stable for ever.
            pub fn number(self) -> u16 {
                match self { $(Self::$variant => $number,)* }
            }

            /// What the caller does.
            pub fn kind(self) -> ErrorKind {
                match self { $(Self::$variant => ErrorKind::$kind,)* }
            }

            /// The gRPC code.
            pub fn code(self) -> Code {
                match self { $(Self::$variant => Code::$code,)* }
            }

            /// Whether the request may have been applied.
            pub fn fate(self) -> Fate {
                match self { $(Self::$variant => Fate::$fate,)* }
            }

            /// The reason of this wire name.
            pub fn parse(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

reasons! {
    /// The request is malformed.
    InvalidRequest = "INVALID_REQUEST", 1001, Invalid, InvalidArgument, NotApplied;
    /// A name breaks the rules.
    InvalidName = "INVALID_NAME", 1002, Invalid, InvalidArgument, NotApplied;
    /// A batch or record is larger than allowed.
    BatchTooLarge = "BATCH_TOO_LARGE", 1003, Invalid, InvalidArgument, NotApplied;
    /// A batch is not a valid RecordBatch v2: length, magic, checksum, count.
    BatchCorrupt = "BATCH_CORRUPT", 1004, Invalid, InvalidArgument, NotApplied;
    /// A record breaks a rule of its topic.
    InvalidRecord = "INVALID_RECORD", 1005, Invalid, InvalidArgument, NotApplied;
    /// Fewer partitions than now: keys would change their partition and lose their order.
    PartitionsDecrease = "PARTITIONS_DECREASE", 1006, Invalid, InvalidArgument, NotApplied;
    /// Client and server share no protocol version.
    UnsupportedVersion = "UNSUPPORTED_VERSION", 1007, Invalid, FailedPrecondition, NotApplied;
    /// No such offset: below the log start or above the end.
    OffsetOutOfRange = "OFFSET_OUT_OF_RANGE", 1008, Invalid, OutOfRange, NotApplied;
    /// Subscriptions of this type are not served by this build.
    UnsupportedType = "UNSUPPORTED_TYPE", 1009, Invalid, FailedPrecondition, NotApplied;
    /// Copies that cannot be: their numbers contradict each other, or there are fewer bookies.
    InvalidReplication = "INVALID_REPLICATION", 1010, Invalid, InvalidArgument, NotApplied;
    /// A transaction may not take that long.
    InvalidTxnTimeout = "INVALID_TXN_TIMEOUT", 1011, Invalid, InvalidArgument, NotApplied;
    /// The caller may not do this.
    PermissionDenied = "PERMISSION_DENIED", 1101, Denied, PermissionDenied, NotApplied;
    /// The caller did not say who it is, or could not prove it.
    Unauthenticated = "UNAUTHENTICATED", 1102, Denied, Unauthenticated, NotApplied;
    /// No topic of this name or identity.
    TopicNotFound = "TOPIC_NOT_FOUND", 1201, NotFound, NotFound, NotApplied;
    /// The topic has fewer partitions.
    PartitionNotFound = "PARTITION_NOT_FOUND", 1202, NotFound, NotFound, NotApplied;
    /// No ledger of this number.
    LedgerNotFound = "LEDGER_NOT_FOUND", 1203, NotFound, NotFound, NotApplied;
    /// No subscription of this name, or not on this topic.
    SubscriptionNotFound = "SUBSCRIPTION_NOT_FOUND", 1204, NotFound, NotFound, NotApplied;
    /// No bookie of this name.
    BookieNotFound = "BOOKIE_NOT_FOUND", 1205, NotFound, NotFound, NotApplied;
    /// No transactional id of this name.
    TxnNotFound = "TXN_NOT_FOUND", 1206, NotFound, NotFound, NotApplied;
    /// No half or scheduled message of this id, or it was decided long ago.
    StagedNotFound = "STAGED_NOT_FOUND", 1207, NotFound, NotFound, NotApplied;
    /// A topic of this name exists.
    TopicExists = "TOPIC_EXISTS", 1301, Exists, AlreadyExists, NotApplied;
    /// A subscription of this name and another type exists.
    SubscriptionExists = "SUBSCRIPTION_EXISTS", 1302, Exists, AlreadyExists, NotApplied;
    /// The subscription is EXCLUSIVE, and another consumer is attached to the partition.
    ConsumerExists = "CONSUMER_EXISTS", 1303, Exists, AlreadyExists, NotApplied;
    /// The topic is being deleted.
    TopicDeleting = "TOPIC_DELETING", 1401, Conflict, FailedPrecondition, NotApplied;
    /// The topic of this name is another one than the caller knew.
    TopicRecreated = "TOPIC_RECREATED", 1402, Conflict, FailedPrecondition, NotApplied;
    /// The batch does not follow the producer's last one (serving.md C2.5).
    OutOfOrderSequence = "OUT_OF_ORDER_SEQUENCE", 1403, Conflict, FailedPrecondition, NotApplied;
    /// The batch overlaps stored sequences without being one of the stored batches (serving.md C2.6).
    SequenceOverlap = "SEQUENCE_OVERLAP", 1404, Conflict, FailedPrecondition, NotApplied;
    /// An earlier batch of this lane was refused; send Resume.
    NackedBefore = "NACKED_BEFORE", 1405, Conflict, FailedPrecondition, NotApplied;
    /// The state forbids it.
    PreconditionFailed = "PRECONDITION_FAILED", 1406, Conflict, FailedPrecondition, NotApplied;
    /// The consumer is not, or no more, the one that the records are delivered to.
    NotOwned = "NOT_OWNED", 1407, Conflict, FailedPrecondition, NotApplied;
    /// The cursor was moved meanwhile: what was said of its former place is void.
    CursorStale = "CURSOR_STALE", 1408, Conflict, FailedPrecondition, NotApplied;
    /// The subscription is being deleted.
    SubscriptionDeleting = "SUBSCRIPTION_DELETING", 1409, Conflict, FailedPrecondition, NotApplied;
    /// Another transaction has staged the same acknowledgement.
    TxnConflict = "TXN_CONFLICT", 1410, Conflict, Aborted, NotApplied;
    /// The transaction can only be aborted.
    TxnAbortable = "TXN_ABORTABLE", 1411, Conflict, Aborted, NotApplied;
    /// The state of the transaction forbids it.
    TxnStateInvalid = "TXN_STATE_INVALID", 1412, Conflict, FailedPrecondition, NotApplied;
    /// The append was to go where the log does not end, or under a fencing token that is overtaken (serving.md C2.8).
    OffsetMismatch = "OFFSET_MISMATCH", 1413, Conflict, FailedPrecondition, NotApplied;
    /// The producer id is not the one of the transactional id.
    ProducerMismatch = "PRODUCER_MISMATCH", 1414, Conflict, FailedPrecondition, NotApplied;
    /// The half or scheduled message was decided otherwise before.
    StagedDecided = "STAGED_DECIDED", 1415, Conflict, FailedPrecondition, NotApplied;
    /// Another broker serves the partition.
    PartitionMoved = "PARTITION_MOVED", 1501, NotOwner, Unavailable, NotApplied;
    /// A newer epoch of this producer exists.
    FencedEpoch = "FENCED_EPOCH", 1601, Fenced, Aborted, NotApplied;
    /// Another consumer took the subscription over.
    ConsumerFenced = "CONSUMER_FENCED", 1602, Fenced, Aborted, NotApplied;
    /// The consumer is no member of its group any more: its session ended, or another one took its place.
    MemberFenced = "MEMBER_FENCED", 1603, Fenced, Aborted, NotApplied;
    /// A newer coordinator of the transaction exists.
    CoordinatorFenced = "COORDINATOR_FENCED", 1604, Fenced, Aborted, NotApplied;
    /// The broker is over a limit.
    Overloaded = "OVERLOADED", 1701, Overloaded, ResourceExhausted, NotApplied;
    /// A subscription keeps more of the partition than its topic allows, and producers wait for it.
    BacklogExceeded = "BACKLOG_EXCEEDED", 1702, Overloaded, ResourceExhausted, NotApplied;
    /// The partition is being opened.
    PartitionLoading = "PARTITION_LOADING", 1801, Unavailable, Unavailable, NotApplied;
    /// The metadata store does not answer.
    MetadataUnavailable = "METADATA_UNAVAILABLE", 1802, Unavailable, Unavailable, NotApplied;
    /// Fewer live bookies than the ack quorum (storage.md M5).
    NotEnoughBookies = "NOT_ENOUGH_BOOKIES", 1803, Unavailable, Unavailable, NotApplied;
    /// Storage refused or could not be reached; nothing was written.
    StorageUnavailable = "STORAGE_UNAVAILABLE", 1804, Unavailable, Unavailable, NotApplied;
    /// The broker is going down.
    ShuttingDown = "SHUTTING_DOWN", 1805, Unavailable, Unavailable, NotApplied;
    /// The disks are full: no records are taken until there is room; reading goes on.
    StorageFull = "STORAGE_FULL", 1806, Unavailable, Unavailable, NotApplied;
    /// The transaction before is being ended.
    TxnConcurrent = "TXN_CONCURRENT", 1807, Unavailable, Unavailable, NotApplied;
    /// The coordinator is being opened, or has too much to do.
    CoordinatorLoading = "COORDINATOR_LOADING", 1808, Unavailable, Unavailable, NotApplied;
    /// The offset is part of a transaction that is not decided.
    OffsetUnstable = "OFFSET_UNSTABLE", 1809, Unavailable, Unavailable, NotApplied;
    /// Storage did not confirm in time; the batch may be stored.
    StorageTimeout = "STORAGE_TIMEOUT", 1901, OutcomeUnknown, DeadlineExceeded, Unknown;
    /// The partition lost its ledger with appends in flight; they may be stored.
    StorageUnknown = "STORAGE_UNKNOWN", 1902, OutcomeUnknown, Unavailable, Unknown;
    /// A metadata change may or may not have been made.
    MetadataUnknown = "METADATA_UNKNOWN", 1903, OutcomeUnknown, Unavailable, Unknown;
    /// Stored data are damaged and no copy is left; `hulse ledgers accept-loss` is the operator's word.
    DataDamaged = "DATA_DAMAGED", 2001, Corrupt, DataLoss, NotApplied;
    /// Something in Hulse is wrong that must not be: a bug.
    Internal = "INTERNAL", 2101, Internal, Internal, Unknown;
}

impl Reason {
    /// True when the same request may succeed later without a change.
    pub fn is_retryable(self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::NotOwner
                | ErrorKind::Overloaded
                | ErrorKind::Unavailable
                | ErrorKind::OutcomeUnknown
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_numbers_are_unique_and_parse_back() {
        let names: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        let numbers: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.number()).collect();
        assert_eq!(
            (names.len(), numbers.len()),
            (Reason::ALL.len(), Reason::ALL.len())
        );
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(*reason));
        }
    }
}
