//! The codec: protobuf, with a look at each message before it is decoded.
//!
//! A message of eight mebibytes may hold millions of empty fields, and its decoder would make room for each. So the fields at the top
//! are counted first; those below them are single numbers and words.

use std::marker::PhantomData;

use bytes::Buf as _;
use hulse_proto::wire::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Full name of the service.
pub(crate) const SERVICE: &str = "hulse.bookie.v1.Bookie";
/// Path of its one method.
pub(crate) const METHOD: &str = "/hulse.bookie.v1.Bookie/Calls";

/// Fields that one message may have at its top: the pieces of the longest entry, a run before it, and what surrounds them.
pub const FIELDS_MAX: usize = 2048;

/// Encodes `T`, decodes `U`.
pub(crate) struct FrameCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for FrameCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for FrameCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = FrameDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        FrameDecoder(ProstDecoder::default())
    }
}

/// Looks, then decodes.
pub(crate) struct FrameDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default> Decoder for FrameDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The whole message lies in one piece in the codec's buffer; should that change, it would be refused here and not decoded.
        if buf.chunk().len() != buf.remaining() {
            return Err(Status::internal("a message in several pieces"));
        }
        check_fields(buf.chunk()).map_err(Status::invalid_argument)?;
        self.0.decode(buf)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Walks the fields at the top of a message.
///
/// # Errors
/// There are more than [`FIELDS_MAX`], or it is no message.
pub fn check_fields(mut bytes: &[u8]) -> Result<(), &'static str> {
    const CUT: &str = "the message is cut off";
    let mut fields = 0;
    while !bytes.is_empty() {
        fields += 1;
        if fields > FIELDS_MAX {
            return Err("the message has too many fields");
        }
        let tag = varint(&mut bytes).ok_or(CUT)?;
        let length = match tag & 7 {
            0 => {
                varint(&mut bytes).ok_or(CUT)?;
                0
            }
            1 => 8,
            2 => varint(&mut bytes).ok_or(CUT)?,
            5 => 4,
            _ => return Err("the message has a field of an unknown kind"),
        };
        let length = usize::try_from(length).map_err(|_| CUT)?;
        bytes = bytes.get(length..).ok_or(CUT)?;
    }
    Ok(())
}

/// Seven bits a byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
