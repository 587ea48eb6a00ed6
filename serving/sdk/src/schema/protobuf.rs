//! Protocol Buffers, by prost.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use bytes::{Bytes, BytesMut};
use prost::Message;

use super::codec::{Schema, SchemaDescriptor, SchemaError, SchemaFormat};

/// Values as messages of Protocol Buffers. Unknown fields are passed over, as the encoding wants it, and not kept.
pub struct Protobuf<T>(PhantomData<fn(T) -> T>);

impl<T> Protobuf<T> {
    /// Of this message.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Default for Protobuf<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Protobuf<T> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Protobuf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Protobuf<{}>", type_name::<T>())
    }
}

impl<T: Message + Default + 'static> Schema for Protobuf<T> {
    type Value = T;

    fn encode(&self, value: &T, into: &mut BytesMut) -> Result<(), SchemaError> {
        Ok(value.encode(into)?)
    }

    fn decode(&self, bytes: &Bytes) -> Result<T, SchemaError> {
        Ok(T::decode(&bytes[..])?)
    }

    fn descriptor(&self) -> SchemaDescriptor {
        SchemaDescriptor::new(SchemaFormat::Protobuf, type_name::<T>())
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::wire::v1::OffsetRange;

    use super::*;

    #[test]
    fn roundtrip_of_a_message_and_refusal_of_what_is_none() {
        let schema = Protobuf::<OffsetRange>::new();
        let value = OffsetRange {
            first: 300,
            end: u64::MAX,
        };
        let mut bytes = BytesMut::new();
        schema.encode(&value, &mut bytes).unwrap();
        let bytes = bytes.freeze();
        assert_eq!(schema.decode(&bytes).unwrap(), value);
        // Cut inside of a number.
        assert!(schema.decode(&bytes.slice(..2)).is_err());
        assert!(schema.decode(&Bytes::from_static(b"{}")).is_err());
    }
}
