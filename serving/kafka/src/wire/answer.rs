//! A response as runs of bytes.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hulse_proto::id::Offset;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Encodable, StrBytes};
use tokio::sync::OwnedSemaphorePermit;

use super::api::Api;
use super::request::Asked;
use crate::error_code::Code;

/// Bytes of the length in front of a frame.
const LENGTH_BYTES: usize = 4;
/// Of a header, at most.
const HEADER_BYTES: usize = 5;

/// A response that can be written.
#[derive(Default)]
pub(crate) struct Answer {
    /// The frame, in order.
    pub(crate) parts: Vec<Bytes>,
    /// The first error in it, for metrics.
    pub(crate) code: Code,
    /// The connection is not read for so long after it (KIP-219).
    pub(crate) mute: Duration,
    /// Room for its bytes, given back when they are written.
    pub(crate) room: Option<OwnedSemaphorePermit>,
    /// Room for what stands around the records in it, where that is much; given back at the same time.
    pub(crate) rows: Option<OwnedSemaphorePermit>,
}

/// Text as the messages have it.
pub(crate) fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// An offset as the messages have it.
pub(crate) fn offset(offset: Offset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}

impl Answer {
    /// A message as the answer to `correlation`; `None` when it cannot be said in this version, which is a bug.
    pub(crate) fn encode<T: Encodable>(asked: Asked, message: &T) -> Option<Self> {
        let version = asked.version;
        let body = message.compute_size(version).ok()?;
        let mut out = BytesMut::with_capacity(LENGTH_BYTES + HEADER_BYTES + body);
        out.put_u32(0);
        put_header(&mut out, asked);
        message.encode(&mut out, version).ok()?;
        let length = u32::try_from(out.len() - LENGTH_BYTES).ok()?;
        out[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        Some(Self {
            parts: vec![out.freeze()],
            ..Self::default()
        })
    }

    /// A frame of a header and body, which `parts` hold.
    pub(crate) fn frame(parts: Vec<Bytes>) -> Self {
        let length: usize = parts.iter().map(Bytes::len).sum();
        let length = u32::try_from(length).expect("an answer's bytes are bounded");
        let mut all = Vec::with_capacity(parts.len() + 1);
        all.push(Bytes::copy_from_slice(&length.to_be_bytes()));
        all.extend(parts);
        Self {
            parts: all,
            ..Self::default()
        }
    }

    /// How long the frame is.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

/// The header of an answer. Of ApiVersions it is never flexible: the client may not know yet what that is (serving.md D2.1).
pub(crate) fn put_header(out: &mut BytesMut, asked: Asked) {
    let Asked {
        key,
        version,
        correlation,
    } = asked;
    out.put_i32(correlation);
    let flexible = Api::find(key as i16).is_some_and(|api| api.is_flexible(version));
    if flexible && key != ApiKey::ApiVersions {
        out.put_u8(0);
    }
}

/// A number of variable length, as flexible messages have it.
pub(crate) fn put_varint(out: &mut BytesMut, value: usize) {
    let mut value = u32::try_from(value).expect("an answer's bytes are bounded");
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}
