//! A frame's header, and its body once that was walked.

use std::fmt;
use std::time::Duration;

use bytes::{Buf, Bytes};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::Decodable;
use serving_broker::IngressPermit;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::api::Api;
use super::inbox::Frame;
use super::schema::{Refusal, Walked, skip_tags, walk};

/// A request that may be decoded.
pub(crate) struct Request {
    /// What is asked.
    pub(crate) api: &'static Api,
    /// In which form.
    pub(crate) version: i16,
    /// Repeated by the answer.
    pub(crate) correlation: i32,
    /// Elements and tagged fields of the body.
    pub(crate) elements: usize,
    /// Bytes of the frame that it came in.
    pub(crate) frame_bytes: usize,
    /// Its room in the broker; given back when it is answered, and its batches are stored or refused.
    room: Option<IngressPermit>,
    /// Room for its decoded form, where that is larger; given back at the same time.
    pub(crate) decoded: Option<OwnedSemaphorePermit>,
    /// How long it had to wait for the first.
    pub(crate) waited: Duration,
    /// When it was read.
    pub(crate) began: Instant,
    /// What the client calls itself.
    client: Bytes,
    body: Bytes,
    /// Of the body, as walked.
    bytes: usize,
}

/// What an answer repeats of its request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) key: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation: i32,
}

/// What a frame turned out to be.
pub(crate) enum Incoming {
    /// A request.
    Request(Request),
    /// Which versions there are was asked in a version that is not known; the answer tells (serving.md D2.1).
    NewerVersions {
        /// Repeated by the answer.
        correlation: i32,
    },
}

/// Why a frame ends its connection. The wire has no answer for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Broken {
    /// No header.
    Header,
    /// A request that is not served (serving.md D2.16).
    Key(i16),
    /// A version that is not served.
    Version(ApiKey, i16),
    /// A length or count of the body is wrong.
    Body(ApiKey, i16, Refusal),
    /// The body is of another form than its version has.
    Form(ApiKey, i16),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("a request's header is cut off"),
            Self::Key(key) => match ApiKey::try_from(*key) {
                Ok(name) => write!(f, "{name:?} (key {key}) is not served"),
                Err(()) => write!(f, "requests of key {key} are not served"),
            },
            Self::Version(key, version) => {
                write!(f, "version {version} of {key:?} is not served")
            }
            Self::Body(key, version, refusal) => {
                write!(f, "{key:?} of version {version} is malformed: {refusal:?}")
            }
            Self::Form(key, version) => write!(f, "{key:?} of version {version} is malformed"),
        }
    }
}

/// A header and a body that was walked.
struct Parsed {
    api: &'static Api,
    version: i16,
    correlation: i32,
    client: Bytes,
    body: Bytes,
    walked: Walked,
}

/// What stands in a frame; `Err` of a number: the correlation of a question in a newer version for the versions.
fn parse(mut bytes: Bytes) -> Result<Result<Parsed, i32>, Broken> {
    let key = bytes.try_get_i16().map_err(|_| Broken::Header)?;
    let version = bytes.try_get_i16().map_err(|_| Broken::Header)?;
    let correlation = bytes.try_get_i32().map_err(|_| Broken::Header)?;
    let api = Api::find(key).ok_or(Broken::Key(key))?;
    if !api.serves(version) {
        return match api.key {
            ApiKey::ApiVersions if version > api.to => Ok(Err(correlation)),
            key => Err(Broken::Version(key, version)),
        };
    }
    // The client's name, which only groups tell of.
    let name = bytes.try_get_i16().map_err(|_| Broken::Header)?;
    let name = usize::try_from(name).unwrap_or(0);
    if name > bytes.len() {
        return Err(Broken::Header);
    }
    let client = bytes.split_to(name);
    let flexible = api.is_flexible(version);
    if flexible {
        let tags = skip_tags(&bytes).map_err(|_| Broken::Header)?;
        bytes.advance(tags);
    }
    let walked = walk(api.schema, &bytes, version, flexible)
        .map_err(|refusal| Broken::Body(api.key, version, refusal))?;
    Ok(Ok(Parsed {
        api,
        version,
        correlation,
        client,
        body: bytes,
        walked,
    }))
}

/// Reads a frame's header and walks its body.
///
/// # Errors
/// [`Broken`]; nothing of the body was allocated.
pub(crate) fn read(frame: Frame) -> Result<Incoming, Broken> {
    let Frame {
        bytes,
        room,
        waited,
    } = frame;
    let frame_bytes = bytes.len();
    let parsed = match parse(bytes)? {
        Ok(parsed) => parsed,
        Err(correlation) => return Ok(Incoming::NewerVersions { correlation }),
    };
    Ok(Incoming::Request(Request {
        api: parsed.api,
        version: parsed.version,
        correlation: parsed.correlation,
        elements: parsed.walked.elements,
        frame_bytes,
        room,
        decoded: None,
        waited,
        began: Instant::now(),
        client: parsed.client,
        body: parsed.body,
        bytes: parsed.walked.bytes,
    }))
}

/// Reads a frame without its length as a connection does, and decodes what is in it; true when all of it is right. For fuzzing.
///
/// # Panics
/// If the walk and the decoder do not end at the same byte.
#[cfg(feature = "testing")]
pub fn decodes(frame: &[u8]) -> bool {
    let Ok(Ok(parsed)) = parse(Bytes::copy_from_slice(frame)) else {
        return false;
    };
    let mut body = parsed.body;
    let before = body.len();
    let decode = decoder(parsed.api.key);
    let decoded = decode(&mut body, parsed.version);
    assert!(
        !decoded || before - body.len() == parsed.walked.bytes,
        "{:?} {}: the walk ended after {} bytes, the decoder after {}",
        parsed.api.key,
        parsed.version,
        parsed.walked.bytes,
        before - body.len()
    );
    decoded
}

#[cfg(feature = "testing")]
fn decoder(key: ApiKey) -> fn(&mut Bytes, i16) -> bool {
    use kafka_protocol::messages;
    fn as_a<T: Decodable>(body: &mut Bytes, version: i16) -> bool {
        T::decode(body, version).is_ok()
    }
    match key {
        ApiKey::Produce => as_a::<messages::ProduceRequest>,
        ApiKey::Fetch => as_a::<messages::FetchRequest>,
        ApiKey::ListOffsets => as_a::<messages::ListOffsetsRequest>,
        ApiKey::Metadata => as_a::<messages::MetadataRequest>,
        ApiKey::ApiVersions => as_a::<messages::ApiVersionsRequest>,
        ApiKey::CreateTopics => as_a::<messages::CreateTopicsRequest>,
        ApiKey::DeleteTopics => as_a::<messages::DeleteTopicsRequest>,
        ApiKey::FindCoordinator => as_a::<messages::FindCoordinatorRequest>,
        ApiKey::OffsetFetch => as_a::<messages::OffsetFetchRequest>,
        ApiKey::JoinGroup => as_a::<messages::JoinGroupRequest>,
        ApiKey::SyncGroup => as_a::<messages::SyncGroupRequest>,
        ApiKey::Heartbeat => as_a::<messages::HeartbeatRequest>,
        ApiKey::LeaveGroup => as_a::<messages::LeaveGroupRequest>,
        ApiKey::OffsetCommit => as_a::<messages::OffsetCommitRequest>,
        ApiKey::OffsetDelete => as_a::<messages::OffsetDeleteRequest>,
        ApiKey::ListGroups => as_a::<messages::ListGroupsRequest>,
        ApiKey::DescribeGroups => as_a::<messages::DescribeGroupsRequest>,
        ApiKey::DeleteGroups => as_a::<messages::DeleteGroupsRequest>,
        ApiKey::ConsumerGroupHeartbeat => as_a::<messages::ConsumerGroupHeartbeatRequest>,
        ApiKey::ConsumerGroupDescribe => as_a::<messages::ConsumerGroupDescribeRequest>,
        ApiKey::InitProducerId => as_a::<messages::InitProducerIdRequest>,
        ApiKey::OffsetForLeaderEpoch => as_a::<messages::OffsetForLeaderEpochRequest>,
        ApiKey::DeleteRecords => as_a::<messages::DeleteRecordsRequest>,
        ApiKey::AlterConfigs => as_a::<messages::AlterConfigsRequest>,
        ApiKey::IncrementalAlterConfigs => as_a::<messages::IncrementalAlterConfigsRequest>,
        ApiKey::DescribeConfigs => as_a::<messages::DescribeConfigsRequest>,
        ApiKey::CreatePartitions => as_a::<messages::CreatePartitionsRequest>,
        ApiKey::DescribeCluster => as_a::<messages::DescribeClusterRequest>,
        ApiKey::DescribeTopicPartitions => as_a::<messages::DescribeTopicPartitionsRequest>,
        key => unreachable!("{key:?} is in the table and not here"),
    }
}

impl Request {
    /// What an answer to it repeats.
    pub(crate) fn asked(&self) -> Asked {
        Asked {
            key: self.api.key,
            version: self.version,
            correlation: self.correlation,
        }
    }

    /// What the client calls itself; nothing where that is no text.
    pub(crate) fn client(&self) -> &str {
        std::str::from_utf8(&self.client).unwrap_or_default()
    }

    /// Its room, for what keeps a part of it longer.
    pub(crate) fn room(&self) -> Option<IngressPermit> {
        self.room.clone()
    }

    /// The message. What is large in it is a slice of the frame.
    ///
    /// # Errors
    /// [`Broken::Form`].
    pub(crate) fn decode<T: Decodable>(&mut self) -> Result<T, Broken> {
        let form = Broken::Form(self.api.key, self.version);
        let mut body = std::mem::take(&mut self.body);
        let before = body.len();
        let decoded = T::decode(&mut body, self.version).map_err(|_| form.clone())?;
        // They read the same fields, or the walk has proved nothing.
        match before - body.len() == self.bytes {
            true => Ok(decoded),
            false => Err(form),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Broken;

    #[test]
    fn request_that_is_not_served_is_called_by_its_name() {
        let told = |key| Broken::Key(key).to_string();
        assert_eq!(told(24), "AddPartitionsToTxn (key 24) is not served");
        assert!(told(9_999).contains("9999"), "{}", told(9_999));
    }
}
