//! From a fault's reason to an error code of this wire: the one table (serving.md E4).
//!
//! Two columns where clients need two words: what a record's path says (Produce, Fetch, ListOffsets, OffsetForLeaderEpoch), where
//! every client asks for metadata anew and tries again on 6 and 19, and what everything else says.

use hulse_proto::error::Reason;

/// A number of the wire.
pub(crate) type Code = i16;

/// No error.
pub(crate) const NONE: Code = 0;
/// UNKNOWN_SERVER_ERROR.
pub(crate) const UNKNOWN: Code = -1;
/// OFFSET_OUT_OF_RANGE.
pub(crate) const OFFSET_OUT_OF_RANGE: Code = 1;
/// UNKNOWN_TOPIC_OR_PARTITION.
pub(crate) const UNKNOWN_TOPIC_OR_PARTITION: Code = 3;
/// NOT_LEADER_OR_FOLLOWER.
pub(crate) const NOT_LEADER: Code = 6;
/// REQUEST_TIMED_OUT.
pub(crate) const REQUEST_TIMED_OUT: Code = 7;
/// COORDINATOR_NOT_AVAILABLE.
pub(crate) const COORDINATOR_NOT_AVAILABLE: Code = 15;
/// INVALID_TOPIC_EXCEPTION.
pub(crate) const INVALID_TOPIC: Code = 17;
/// INVALID_REQUIRED_ACKS.
pub(crate) const INVALID_REQUIRED_ACKS: Code = 21;
/// UNSUPPORTED_VERSION.
pub(crate) const UNSUPPORTED_VERSION: Code = 35;
/// INVALID_PARTITIONS.
pub(crate) const INVALID_PARTITIONS: Code = 37;
/// INVALID_REPLICA_ASSIGNMENT.
pub(crate) const INVALID_REPLICA_ASSIGNMENT: Code = 39;
/// INVALID_CONFIG.
pub(crate) const INVALID_CONFIG: Code = 40;
/// INVALID_REQUEST.
pub(crate) const INVALID_REQUEST: Code = 42;
/// FETCH_SESSION_ID_NOT_FOUND.
pub(crate) const FETCH_SESSION_ID_NOT_FOUND: Code = 70;
/// INVALID_FETCH_SESSION_EPOCH.
pub(crate) const INVALID_FETCH_SESSION_EPOCH: Code = 71;
/// FENCED_LEADER_EPOCH.
pub(crate) const FENCED_LEADER_EPOCH: Code = 74;
/// UNKNOWN_LEADER_EPOCH.
pub(crate) const UNKNOWN_LEADER_EPOCH: Code = 75;
/// UNSUPPORTED_COMPRESSION_TYPE.
pub(crate) const UNSUPPORTED_COMPRESSION: Code = 76;
/// INVALID_RECORD.
pub(crate) const INVALID_RECORD: Code = 87;
/// UNKNOWN_TOPIC_ID.
pub(crate) const UNKNOWN_TOPIC_ID: Code = 100;

/// The codes of a reason: on a record's path, and elsewhere.
pub(crate) fn codes(reason: Reason) -> (Code, Code) {
    match reason {
        Reason::InvalidRequest | Reason::PreconditionFailed => (INVALID_REQUEST, INVALID_REQUEST),
        Reason::InvalidName => (INVALID_TOPIC, INVALID_TOPIC),
        // MESSAGE_TOO_LARGE.
        Reason::BatchTooLarge => (10, 10),
        // CORRUPT_MESSAGE.
        Reason::BatchCorrupt => (2, 2),
        Reason::InvalidRecord => (INVALID_RECORD, INVALID_RECORD),
        Reason::PartitionsDecrease => (INVALID_PARTITIONS, INVALID_PARTITIONS),
        Reason::UnsupportedVersion => (UNSUPPORTED_VERSION, UNSUPPORTED_VERSION),
        Reason::OffsetOutOfRange => (OFFSET_OUT_OF_RANGE, OFFSET_OUT_OF_RANGE),
        // TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
        Reason::PermissionDenied => (29, 31),
        // SASL_AUTHENTICATION_FAILED.
        Reason::Unauthenticated => (58, 58),
        Reason::TopicNotFound | Reason::PartitionNotFound | Reason::TopicDeleting => {
            (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION)
        }
        // Subscriptions are no word of this wire.
        Reason::LedgerNotFound
        | Reason::UnsupportedType
        | Reason::SubscriptionNotFound
        | Reason::SubscriptionExists
        | Reason::SubscriptionDeleting
        | Reason::ConsumerExists
        | Reason::ConsumerFenced
        | Reason::NotOwned
        | Reason::CursorStale => (UNKNOWN, UNKNOWN),
        // TOPIC_ALREADY_EXISTS.
        Reason::TopicExists => (36, 36),
        // INCONSISTENT_TOPIC_ID.
        Reason::TopicRecreated => (103, 103),
        // OUT_OF_ORDER_SEQUENCE_NUMBER.
        Reason::OutOfOrderSequence | Reason::SequenceOverlap | Reason::NackedBefore => (45, 45),
        // INVALID_PRODUCER_EPOCH.
        Reason::FencedEpoch => (47, 47),
        Reason::PartitionMoved | Reason::ShuttingDown => (NOT_LEADER, NOT_LEADER),
        // NOT_ENOUGH_REPLICAS says "not written, try again" to every producer; THROTTLING_QUOTA_EXCEEDED does to admin clients only.
        Reason::Overloaded => (19, 89),
        // LEADER_NOT_AVAILABLE is a word of Metadata.
        Reason::PartitionLoading => (NOT_LEADER, 5),
        Reason::MetadataUnavailable => (NOT_LEADER, REQUEST_TIMED_OUT),
        // NOT_ENOUGH_REPLICAS: not written, try again later.
        Reason::NotEnoughBookies | Reason::StorageFull => (19, 19),
        // KAFKA_STORAGE_ERROR: clients look for another leader and try again.
        Reason::StorageUnavailable => (56, 56),
        Reason::StorageTimeout | Reason::StorageUnknown | Reason::MetadataUnknown => {
            (REQUEST_TIMED_OUT, REQUEST_TIMED_OUT)
        }
        Reason::DataDamaged => (56, UNKNOWN),
        Reason::Internal => (UNKNOWN, UNKNOWN),
    }
}

/// The code of a reason on a record's path.
pub(crate) fn of_record(reason: Reason) -> Code {
    codes(reason).0
}

/// As [`of_record`], of a topic that was named by its identity.
pub(crate) fn of_record_by_id(reason: Reason) -> Code {
    match of_record(reason) {
        UNKNOWN_TOPIC_OR_PARTITION if reason != Reason::PartitionNotFound => UNKNOWN_TOPIC_ID,
        code => code,
    }
}

/// The code of a reason elsewhere.
pub(crate) fn of_request(reason: Reason) -> Code {
    codes(reason).1
}

#[cfg(test)]
mod tests {
    use kafka_protocol::ResponseError;

    use super::*;

    #[test]
    fn every_code_exists_and_what_may_be_retried_says_so() {
        for reason in Reason::ALL {
            let (record, request) = codes(*reason);
            for code in [record, request] {
                let known = ResponseError::try_from_code(code);
                assert!(known.is_some(), "{reason:?} has {code}");
                assert_eq!(known.unwrap().code(), code, "{reason:?} has {code}");
            }
            if reason.is_retryable() {
                let known = ResponseError::try_from_code(record).unwrap();
                assert!(known.is_retriable(), "{reason:?} has {record}");
            }
        }
    }
}
