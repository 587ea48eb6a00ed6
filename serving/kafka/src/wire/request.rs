//! A frame's header, and its body once that was walked.

use std::fmt;
use std::time::Duration;

use bytes::{Buf, Bytes};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::Decodable;
use serving_broker::IngressPermit;
use tokio::time::Instant;

use super::api::Api;
use super::inbox::Frame;
use super::schema::{Refusal, skip_tags, walk};

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
    /// Its room in the broker; given back when it is answered.
    _room: IngressPermit,
    /// How long it had to wait for that.
    pub(crate) waited: Duration,
    /// When it was read.
    pub(crate) began: Instant,
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
            Self::Key(key) => write!(f, "requests of key {key} are not served"),
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

/// Reads a frame's header and walks its body.
///
/// # Errors
/// [`Broken`]; nothing of the body was allocated.
pub(crate) fn read(frame: Frame) -> Result<Incoming, Broken> {
    let Frame {
        mut bytes,
        room,
        waited,
    } = frame;
    let frame_bytes = bytes.len();
    let key = bytes.try_get_i16().map_err(|_| Broken::Header)?;
    let version = bytes.try_get_i16().map_err(|_| Broken::Header)?;
    let correlation = bytes.try_get_i32().map_err(|_| Broken::Header)?;
    let api = Api::find(key).ok_or(Broken::Key(key))?;
    if !api.serves(version) {
        return match api.key {
            ApiKey::ApiVersions if version > api.to => Ok(Incoming::NewerVersions { correlation }),
            key => Err(Broken::Version(key, version)),
        };
    }
    // The client's name, which is nobody's business here.
    let name = bytes.try_get_i16().map_err(|_| Broken::Header)?;
    let name = usize::try_from(name).unwrap_or(0);
    if name > bytes.len() {
        return Err(Broken::Header);
    }
    bytes.advance(name);
    let flexible = api.is_flexible(version);
    if flexible {
        let tags = skip_tags(&bytes).map_err(|_| Broken::Header)?;
        bytes.advance(tags);
    }
    let walked = walk(api.schema, &bytes, version, flexible)
        .map_err(|refusal| Broken::Body(api.key, version, refusal))?;
    Ok(Incoming::Request(Request {
        api,
        version,
        correlation,
        elements: walked.elements,
        frame_bytes,
        _room: room,
        waited,
        began: Instant::now(),
        body: bytes,
        bytes: walked.bytes,
    }))
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
