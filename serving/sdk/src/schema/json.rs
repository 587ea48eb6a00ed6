//! JSON, by serde.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::{Schema, SchemaDescriptor, SchemaError, SchemaFormat};

/// Values as JSON (RFC 8259), without spaces. Nesting is bounded by serde_json's 128 levels.
pub struct Json<T>(PhantomData<fn(T) -> T>);

impl<T> Json<T> {
    /// Of this type.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Default for Json<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Json<T> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Json<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json<{}>", type_name::<T>())
    }
}

impl<T: Serialize + DeserializeOwned + 'static> Schema for Json<T> {
    type Value = T;

    fn encode(&self, value: &T, into: &mut BytesMut) -> Result<(), SchemaError> {
        Ok(serde_json::to_writer(into.writer(), value)?)
    }

    fn decode(&self, bytes: &Bytes) -> Result<T, SchemaError> {
        Ok(serde_json::from_slice(bytes)?)
    }

    fn descriptor(&self) -> SchemaDescriptor {
        SchemaDescriptor::new(SchemaFormat::Json, type_name::<T>())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Counts = BTreeMap<String, i64>;

    #[test]
    fn roundtrip_of_a_value_and_refusal_of_what_is_none() {
        let schema = Json::<Counts>::new();
        let value = Counts::from([("a".to_owned(), -1), ("ä".to_owned(), i64::MAX)]);
        let mut bytes = BytesMut::new();
        schema.encode(&value, &mut bytes).unwrap();
        let bytes = bytes.freeze();
        assert_eq!(schema.decode(&bytes).unwrap(), value);
        for cut in 0..bytes.len() {
            assert!(schema.decode(&bytes.slice(..cut)).is_err(), "{cut} bytes");
        }
        let deep = Bytes::from("[".repeat(100_000));
        assert!(schema.decode(&deep).is_err());
        assert!(schema.decode(&Bytes::from_static(b"{} x")).is_err());
    }

    #[test]
    fn value_that_has_no_json_is_refused() {
        let schema = Json::<BTreeMap<(u8, u8), u8>>::new();
        let value = BTreeMap::from([((1, 2), 3)]);
        assert!(schema.encode(&value, &mut BytesMut::new()).is_err());
    }
}
