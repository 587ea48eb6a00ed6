//! Reads what came from outside into our types, or says what is wrong with it.

use std::time::Duration;

use futures::StreamExt;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{PartitionId, TopicId, TopicName};
use hulse_proto::limits::PROTOCOL_VERSION;
use hulse_proto::wire::v1;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use super::front::shutting_down;

/// A client says Hello within this.
const HELLO_WAIT: Duration = Duration::from_secs(10);
/// Longest client id that is taken, bytes.
const CLIENT_ID_BYTES_MAX: usize = 256;

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

/// A client id is for people: any words, but not without end.
///
/// # Errors
/// `INVALID_REQUEST`.
pub(super) fn check_client_id(client_id: &str) -> Result<(), Fault> {
    if client_id.len() <= CLIENT_ID_BYTES_MAX {
        return Ok(());
    }
    let bytes = client_id.len();
    Err(invalid(format!(
        "client_id of {bytes} bytes is longer than {CLIENT_ID_BYTES_MAX}"
    )))
}

/// The first item of a session, which must be a Hello; `None`: the client is gone.
///
/// # Errors
/// `INVALID_REQUEST`: none came in time, or it cannot be read; `SHUTTING_DOWN`.
pub(super) async fn first_item<T>(
    up: &mut Streaming<T>,
    drain: &CancellationToken,
) -> Result<Option<T>, Fault> {
    let first = tokio::select! {
        biased;
        () = drain.cancelled() => return Err(shutting_down()),
        first = tokio::time::timeout(HELLO_WAIT, up.next()) => first,
    };
    match first {
        Err(_) => Err(invalid("no Hello came in time; it is the first item")),
        Ok(None) => Ok(None),
        Ok(Some(Err(status))) => read_fault(&status).map_or(Ok(None), Err),
        Ok(Some(Ok(item))) => Ok(Some(item)),
    }
}

/// The first item was another one.
pub(super) fn no_hello() -> Fault {
    invalid("the first item of a session must be Hello")
}

/// What every Hello says.
///
/// # Errors
/// `INVALID_REQUEST`, `UNSUPPORTED_VERSION`.
pub(super) fn check_hello(client_id: &str, protocol_version: u32) -> Result<(), Fault> {
    check_client_id(client_id)?;
    if protocol_version == PROTOCOL_VERSION {
        return Ok(());
    }
    let words = format!(
        "client speaks protocol version {protocol_version}, this broker speaks {PROTOCOL_VERSION}; \
         use a client of the same release line"
    );
    let fault = Fault::new(Reason::UnsupportedVersion, words);
    Err(fault.with("protocol_version", PROTOCOL_VERSION))
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
