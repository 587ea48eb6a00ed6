//! Reads what came from outside into our types, or says what is wrong with it.

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{PartitionId, TopicId, TopicName};
use hulse_proto::wire::v1;
use tonic::{Code, Status};

/// "The request is malformed."
pub(super) fn invalid(why: impl Into<String>) -> Fault {
    Fault::new(Reason::InvalidRequest, why)
}

/// A topic's name.
///
/// # Errors
/// `INVALID_NAME`, with the rule that it breaks.
pub(super) fn topic_name(name: &str) -> Result<TopicName, Fault> {
    name.parse().map_err(|error: hulse_proto::id::NameError| {
        Fault::new(Reason::InvalidName, error.to_string())
    })
}

/// A partition by identity.
///
/// # Errors
/// `INVALID_REQUEST`: absent, or an identity that is not 16 bytes.
pub(super) fn partition(wire: Option<&v1::Partition>) -> Result<PartitionId, Fault> {
    let wire = wire.ok_or_else(|| invalid("partition is not set"))?;
    let topic = TopicId::from_slice(&wire.topic_uuid).ok_or_else(|| {
        invalid(format!(
            "topic_uuid has {} bytes, not 16",
            wire.topic_uuid.len()
        ))
    })?;
    Ok(PartitionId {
        topic,
        index: wire.index,
    })
}

/// What the client did wrong when its stream cannot be read; `None`: it went away.
pub(super) fn read_fault(status: &Status) -> Option<Fault> {
    match status.code() {
        Code::Cancelled | Code::Unknown | Code::Unavailable => None,
        _ => Some(invalid(format!(
            "an item of the session cannot be read: {}",
            status.message()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_of_a_wrong_identity_is_refused() {
        for bytes in [&b""[..], &[1; 15], &[1; 17]] {
            let topic_uuid = bytes::Bytes::copy_from_slice(bytes);
            let wire = v1::Partition {
                topic_uuid,
                index: 0,
            };
            assert_eq!(
                partition(Some(&wire)).unwrap_err().reason,
                Reason::InvalidRequest
            );
        }
        assert_eq!(partition(None).unwrap_err().reason, Reason::InvalidRequest);
        let wire = v1::Partition {
            topic_uuid: vec![7; 16].into(),
            index: 3,
        };
        assert_eq!(partition(Some(&wire)).unwrap().index, 3);
    }

    #[test]
    fn topic_name_with_a_null_byte_is_refused_with_the_rule() {
        let fault = topic_name("gree\0tings").unwrap_err();
        assert_eq!(fault.reason, Reason::InvalidName);
        assert!(fault.message.contains("only [A-Za-z0-9._-]"), "{fault}");
    }
}
