//! From a fault's reason to an error code of this wire: the one table (serving.md E4).
//!
//! Three columns, as clients know other words in each place. Producers, and those who look for an offset, ask for metadata anew and
//! try again on `NOT_LEADER`, `NOT_ENOUGH_REPLICAS`, `KAFKA_STORAGE_ERROR` and `REQUEST_TIMED_OUT`. Kafka's Java consumer ends for
//! good on any code in Fetch that it does not expect there, the last two but one and the last among them: the test has the list of
//! those that it does. Everything else (Metadata, and what administers) has the third.

use hulse_proto::error::Reason;
use uuid::Uuid;

/// A number of the wire.
pub(crate) type Code = i16;

macro_rules! codes {
    ($($name:ident = $code:literal, $words:literal;)*) => {
        $(#[doc = $words]
        pub(crate) const $name: Code = $code;)*

        /// What a code is called, in metrics.
        pub(crate) const fn name(code: Code) -> &'static str {
            match code {
                $($code => $words,)*
                _ => "ANOTHER",
            }
        }
    };
}

codes! {
    NONE = 0, "OK";
    UNKNOWN = -1, "UNKNOWN_SERVER_ERROR";
    OFFSET_OUT_OF_RANGE = 1, "OFFSET_OUT_OF_RANGE";
    CORRUPT_MESSAGE = 2, "CORRUPT_MESSAGE";
    UNKNOWN_TOPIC_OR_PARTITION = 3, "UNKNOWN_TOPIC_OR_PARTITION";
    LEADER_NOT_AVAILABLE = 5, "LEADER_NOT_AVAILABLE";
    NOT_LEADER = 6, "NOT_LEADER_OR_FOLLOWER";
    REQUEST_TIMED_OUT = 7, "REQUEST_TIMED_OUT";
    MESSAGE_TOO_LARGE = 10, "MESSAGE_TOO_LARGE";
    OFFSET_METADATA_TOO_LARGE = 12, "OFFSET_METADATA_TOO_LARGE";
    COORDINATOR_LOAD_IN_PROGRESS = 14, "COORDINATOR_LOAD_IN_PROGRESS";
    COORDINATOR_NOT_AVAILABLE = 15, "COORDINATOR_NOT_AVAILABLE";
    NOT_COORDINATOR = 16, "NOT_COORDINATOR";
    INVALID_TOPIC = 17, "INVALID_TOPIC_EXCEPTION";
    NOT_ENOUGH_REPLICAS = 19, "NOT_ENOUGH_REPLICAS";
    INVALID_REQUIRED_ACKS = 21, "INVALID_REQUIRED_ACKS";
    ILLEGAL_GENERATION = 22, "ILLEGAL_GENERATION";
    INCONSISTENT_GROUP_PROTOCOL = 23, "INCONSISTENT_GROUP_PROTOCOL";
    INVALID_GROUP_ID = 24, "INVALID_GROUP_ID";
    UNKNOWN_MEMBER_ID = 25, "UNKNOWN_MEMBER_ID";
    INVALID_SESSION_TIMEOUT = 26, "INVALID_SESSION_TIMEOUT";
    REBALANCE_IN_PROGRESS = 27, "REBALANCE_IN_PROGRESS";
    TOPIC_AUTHORIZATION_FAILED = 29, "TOPIC_AUTHORIZATION_FAILED";
    GROUP_AUTHORIZATION_FAILED = 30, "GROUP_AUTHORIZATION_FAILED";
    CLUSTER_AUTHORIZATION_FAILED = 31, "CLUSTER_AUTHORIZATION_FAILED";
    UNSUPPORTED_VERSION = 35, "UNSUPPORTED_VERSION";
    TOPIC_ALREADY_EXISTS = 36, "TOPIC_ALREADY_EXISTS";
    INVALID_PARTITIONS = 37, "INVALID_PARTITIONS";
    INVALID_REPLICATION_FACTOR = 38, "INVALID_REPLICATION_FACTOR";
    INVALID_REPLICA_ASSIGNMENT = 39, "INVALID_REPLICA_ASSIGNMENT";
    INVALID_CONFIG = 40, "INVALID_CONFIG";
    INVALID_REQUEST = 42, "INVALID_REQUEST";
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER";
    INVALID_PRODUCER_EPOCH = 47, "INVALID_PRODUCER_EPOCH";
    INVALID_TXN_STATE = 48, "INVALID_TXN_STATE";
    INVALID_PRODUCER_ID_MAPPING = 49, "INVALID_PRODUCER_ID_MAPPING";
    INVALID_TRANSACTION_TIMEOUT = 50, "INVALID_TRANSACTION_TIMEOUT";
    CONCURRENT_TRANSACTIONS = 51, "CONCURRENT_TRANSACTIONS";
    TRANSACTION_COORDINATOR_FENCED = 52, "TRANSACTION_COORDINATOR_FENCED";
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED";
    KAFKA_STORAGE_ERROR = 56, "KAFKA_STORAGE_ERROR";
    SASL_AUTHENTICATION_FAILED = 58, "SASL_AUTHENTICATION_FAILED";
    NON_EMPTY_GROUP = 68, "NON_EMPTY_GROUP";
    GROUP_ID_NOT_FOUND = 69, "GROUP_ID_NOT_FOUND";
    FETCH_SESSION_ID_NOT_FOUND = 70, "FETCH_SESSION_ID_NOT_FOUND";
    INVALID_FETCH_SESSION_EPOCH = 71, "INVALID_FETCH_SESSION_EPOCH";
    FENCED_LEADER_EPOCH = 74, "FENCED_LEADER_EPOCH";
    UNKNOWN_LEADER_EPOCH = 75, "UNKNOWN_LEADER_EPOCH";
    UNSUPPORTED_COMPRESSION = 76, "UNSUPPORTED_COMPRESSION_TYPE";
    MEMBER_ID_REQUIRED = 79, "MEMBER_ID_REQUIRED";
    GROUP_MAX_SIZE_REACHED = 81, "GROUP_MAX_SIZE_REACHED";
    FENCED_INSTANCE_ID = 82, "FENCED_INSTANCE_ID";
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "GROUP_SUBSCRIBED_TO_TOPIC";
    INVALID_RECORD = 87, "INVALID_RECORD";
    UNSTABLE_OFFSET_COMMIT = 88, "UNSTABLE_OFFSET_COMMIT";
    THROTTLING_QUOTA_EXCEEDED = 89, "THROTTLING_QUOTA_EXCEEDED";
    UNKNOWN_TOPIC_ID = 100, "UNKNOWN_TOPIC_ID";
    INCONSISTENT_TOPIC_ID = 103, "INCONSISTENT_TOPIC_ID";
    TRANSACTIONAL_ID_NOT_FOUND = 105, "TRANSACTIONAL_ID_NOT_FOUND";
    FENCED_MEMBER_EPOCH = 110, "FENCED_MEMBER_EPOCH";
    UNRELEASED_INSTANCE_ID = 111, "UNRELEASED_INSTANCE_ID";
    UNSUPPORTED_ASSIGNOR = 112, "UNSUPPORTED_ASSIGNOR";
    STALE_MEMBER_EPOCH = 113, "STALE_MEMBER_EPOCH";
    UNSUPPORTED_ENDPOINT_TYPE = 115, "UNSUPPORTED_ENDPOINT_TYPE";
    TRANSACTION_ABORTABLE = 120, "TRANSACTION_ABORTABLE";
    INVALID_REGULAR_EXPRESSION = 128, "INVALID_REGULAR_EXPRESSION";
}

/// The first error of several codes, or none.
pub(crate) fn first_error(codes: impl IntoIterator<Item = Code>) -> Code {
    let mut codes = codes.into_iter();
    codes.find(|code| *code != NONE).unwrap_or(NONE)
}

/// What a reason is called, by where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Codes {
    /// Produce, ListOffsets, OffsetForLeaderEpoch.
    record: Code,
    /// Fetch.
    fetch: Code,
    /// Everything else.
    request: Code,
}

/// A row of the table.
const fn row(record: Code, fetch: Code, request: Code) -> Codes {
    Codes {
        record,
        fetch,
        request,
    }
}

/// A row of what no fetch meets: if it did, that is a bug, which `UNKNOWN` says.
const fn not_of_fetch(code: Code) -> Codes {
    row(code, UNKNOWN, code)
}

/// A row of one code.
const fn everywhere(code: Code) -> Codes {
    row(code, code, code)
}

const DENIED: Codes = row(
    TOPIC_AUTHORIZATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED,
    CLUSTER_AUTHORIZATION_FAILED,
);
const UNKNOWN_CALLER: Codes = row(
    SASL_AUTHENTICATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED,
    SASL_AUTHENTICATION_FAILED,
);

/// Rows of what coordinators say.
const fn of_coordinators(reason: Reason) -> Codes {
    // To producers that do not know transactions of the second version, other words that say "try again" are fatal.
    match reason {
        Reason::InvalidTxnTimeout => not_of_fetch(INVALID_TRANSACTION_TIMEOUT),
        Reason::TxnNotFound => not_of_fetch(TRANSACTIONAL_ID_NOT_FOUND),
        Reason::ProducerMismatch => not_of_fetch(INVALID_PRODUCER_ID_MAPPING),
        Reason::TxnStateInvalid => not_of_fetch(INVALID_TXN_STATE),
        Reason::TxnAbortable => not_of_fetch(TRANSACTION_ABORTABLE),
        Reason::CoordinatorFenced => not_of_fetch(TRANSACTION_COORDINATOR_FENCED),
        Reason::TxnConcurrent => row(NOT_ENOUGH_REPLICAS, NOT_LEADER, CONCURRENT_TRANSACTIONS),
        Reason::OffsetUnstable => row(NOT_ENOUGH_REPLICAS, NOT_LEADER, UNSTABLE_OFFSET_COMMIT),
        _ => row(
            NOT_ENOUGH_REPLICAS,
            NOT_LEADER,
            COORDINATOR_LOAD_IN_PROGRESS,
        ),
    }
}

const fn codes(reason: Reason) -> Codes {
    match reason {
        Reason::InvalidRequest | Reason::PreconditionFailed => not_of_fetch(INVALID_REQUEST),
        Reason::InvalidName => row(INVALID_TOPIC, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC),
        Reason::BatchTooLarge => not_of_fetch(MESSAGE_TOO_LARGE),
        Reason::BatchCorrupt => everywhere(CORRUPT_MESSAGE),
        Reason::InvalidRecord => not_of_fetch(INVALID_RECORD),
        Reason::PartitionsDecrease => not_of_fetch(INVALID_PARTITIONS),
        Reason::UnsupportedVersion => not_of_fetch(UNSUPPORTED_VERSION),
        Reason::OffsetOutOfRange => everywhere(OFFSET_OUT_OF_RANGE),
        Reason::PermissionDenied => DENIED,
        Reason::Unauthenticated => UNKNOWN_CALLER,
        Reason::TopicNotFound | Reason::PartitionNotFound | Reason::TopicDeleting => {
            everywhere(UNKNOWN_TOPIC_OR_PARTITION)
        }
        // Subscriptions, bookies, half messages and conditional appends are no words of this wire.
        Reason::LedgerNotFound
        | Reason::BookieNotFound
        | Reason::UnsupportedType
        | Reason::SubscriptionNotFound
        | Reason::SubscriptionExists
        | Reason::SubscriptionDeleting
        | Reason::ConsumerExists
        | Reason::ConsumerFenced
        | Reason::MemberFenced
        | Reason::NotOwned
        | Reason::CursorStale
        | Reason::StagedNotFound
        | Reason::StagedDecided
        | Reason::TxnConflict
        | Reason::OffsetMismatch
        | Reason::Internal => everywhere(UNKNOWN),
        Reason::TopicExists => not_of_fetch(TOPIC_ALREADY_EXISTS),
        Reason::InvalidReplication => not_of_fetch(INVALID_REPLICATION_FACTOR),
        Reason::TopicRecreated => everywhere(INCONSISTENT_TOPIC_ID),
        Reason::OutOfOrderSequence | Reason::SequenceOverlap | Reason::NackedBefore => {
            not_of_fetch(OUT_OF_ORDER_SEQUENCE_NUMBER)
        }
        Reason::FencedEpoch => not_of_fetch(INVALID_PRODUCER_EPOCH),
        Reason::InvalidTxnTimeout
        | Reason::TxnNotFound
        | Reason::ProducerMismatch
        | Reason::TxnStateInvalid
        | Reason::TxnAbortable
        | Reason::CoordinatorFenced
        | Reason::TxnConcurrent
        | Reason::CoordinatorLoading
        | Reason::OffsetUnstable => of_coordinators(reason),
        Reason::PartitionMoved | Reason::ShuttingDown => everywhere(NOT_LEADER),
        // NOT_ENOUGH_REPLICAS says "not written, try again" to every producer; THROTTLING_QUOTA_EXCEEDED does to admin clients only.
        Reason::Overloaded | Reason::BacklogExceeded => row(
            NOT_ENOUGH_REPLICAS,
            KAFKA_STORAGE_ERROR,
            THROTTLING_QUOTA_EXCEEDED,
        ),
        // LEADER_NOT_AVAILABLE is a word of Metadata.
        Reason::PartitionLoading => row(NOT_LEADER, NOT_LEADER, LEADER_NOT_AVAILABLE),
        Reason::MetadataUnavailable => row(NOT_LEADER, NOT_LEADER, REQUEST_TIMED_OUT),
        // Not written, try again later.
        Reason::NotEnoughBookies | Reason::StorageFull => row(
            NOT_ENOUGH_REPLICAS,
            KAFKA_STORAGE_ERROR,
            NOT_ENOUGH_REPLICAS,
        ),
        // Clients look for another leader and try again.
        Reason::StorageUnavailable => everywhere(KAFKA_STORAGE_ERROR),
        Reason::StorageTimeout | Reason::StorageUnknown => {
            row(REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT)
        }
        Reason::MetadataUnknown => row(REQUEST_TIMED_OUT, NOT_LEADER, REQUEST_TIMED_OUT),
        // Consumers ask again for ever without a word after KAFKA_STORAGE_ERROR; of this one their applications hear.
        Reason::DataDamaged => row(KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE, UNKNOWN),
    }
}

/// The code of a reason where records are written, or places in a log are looked for.
pub(crate) fn of_record(reason: Reason) -> Code {
    codes(reason).record
}

/// The code of a reason in Fetch.
pub(crate) fn of_fetch(reason: Reason) -> Code {
    codes(reason).fetch
}

/// The code of a reason elsewhere.
pub(crate) fn of_request(reason: Reason) -> Code {
    codes(reason).request
}

/// The `code` of a reason where the topic was named by `id`, which is nil where it was named by its name.
pub(crate) fn by_id(id: Uuid, reason: Reason, code: Code) -> Code {
    let topic_is_unknown =
        code == UNKNOWN_TOPIC_OR_PARTITION && reason != Reason::PartitionNotFound;
    match topic_is_unknown && !id.is_nil() {
        true => UNKNOWN_TOPIC_ID,
        false => code,
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::ResponseError;

    use super::*;

    #[test]
    fn every_code_exists_and_what_may_be_retried_says_so() {
        for reason in Reason::ALL {
            let Codes {
                record,
                fetch,
                request,
            } = codes(*reason);
            for code in [record, fetch, request] {
                let known = ResponseError::try_from_code(code);
                assert!(known.is_some(), "{reason:?} has {code}");
                assert_eq!(known.unwrap().code(), code, "{reason:?} has {code}");
            }
            if reason.is_retryable() {
                for code in [record, fetch] {
                    let known = ResponseError::try_from_code(code).unwrap();
                    assert!(known.is_retriable(), "{reason:?} has {code}");
                }
            }
        }
    }

    #[test]
    fn topic_is_unknown_by_what_it_was_called() {
        let (name, id) = (Uuid::nil(), Uuid::from_u128(1));
        for reason in [Reason::TopicNotFound, Reason::TopicDeleting] {
            let told = |called| by_id(called, reason, of_record(reason));
            assert_eq!(told(name), UNKNOWN_TOPIC_OR_PARTITION);
            assert_eq!(told(id), UNKNOWN_TOPIC_ID);
        }
        let reason = Reason::PartitionNotFound;
        let told = by_id(id, reason, of_record(reason));
        assert_eq!(told, UNKNOWN_TOPIC_OR_PARTITION, "the topic is known");
    }

    #[test]
    fn fetch_has_no_code_that_ends_a_java_consumer() {
        let known = [
            UNKNOWN,
            OFFSET_OUT_OF_RANGE,
            CORRUPT_MESSAGE,
            UNKNOWN_TOPIC_OR_PARTITION,
            NOT_LEADER,
            // REPLICA_NOT_AVAILABLE.
            9,
            TOPIC_AUTHORIZATION_FAILED,
            KAFKA_STORAGE_ERROR,
            FENCED_LEADER_EPOCH,
            UNKNOWN_LEADER_EPOCH,
            // OFFSET_NOT_AVAILABLE.
            78,
            UNKNOWN_TOPIC_ID,
            INCONSISTENT_TOPIC_ID,
        ];
        for reason in Reason::ALL {
            for id in [Uuid::nil(), Uuid::from_u128(1)] {
                let code = by_id(id, *reason, of_fetch(*reason));
                assert!(known.contains(&code), "{reason:?} has {code}");
            }
        }
    }
}
