//! How a value becomes bytes and back.

use bytes::{Bytes, BytesMut};

/// Why a value has no bytes, or bytes are no value.
pub type SchemaError = Box<dyn std::error::Error + Send + Sync>;

/// How values of one type are written into records. Cheap to clone.
pub trait Schema: Clone + Send + Sync + 'static {
    /// What a record carries.
    type Value;

    /// Appends the bytes of a value.
    ///
    /// # Errors
    /// It has none; what was appended is dropped.
    fn encode(&self, value: &Self::Value, into: &mut BytesMut) -> Result<(), SchemaError>;

    /// The value of these bytes, all of them.
    ///
    /// # Errors
    /// They are none. Bytes come from anybody: an implementation does not panic, and takes memory in proportion to what they are.
    fn decode(&self, bytes: &Bytes) -> Result<Self::Value, SchemaError>;

    /// What it is, for people and registries.
    fn descriptor(&self) -> SchemaDescriptor;
}

/// What a schema says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaDescriptor {
    /// The form of the bytes.
    pub format: SchemaFormat,
    /// The name of the type, as the program has it.
    pub name: String,
}

impl SchemaDescriptor {
    /// Of this format, and of a type with this name.
    pub fn new(format: SchemaFormat, name: impl Into<String>) -> Self {
        Self {
            format,
            name: name.into(),
        }
    }
}

/// The form of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SchemaFormat {
    /// Any bytes.
    Bytes,
    /// UTF-8.
    Text,
    /// RFC 8259.
    Json,
    /// proto3 or proto2 messages.
    Protobuf,
    /// One of the program's own.
    Other,
}

/// Bytes as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Raw;

impl Schema for Raw {
    type Value = Bytes;

    fn encode(&self, value: &Bytes, into: &mut BytesMut) -> Result<(), SchemaError> {
        into.extend_from_slice(value);
        Ok(())
    }

    fn decode(&self, bytes: &Bytes) -> Result<Bytes, SchemaError> {
        Ok(bytes.clone())
    }

    fn descriptor(&self) -> SchemaDescriptor {
        SchemaDescriptor::new(SchemaFormat::Bytes, "bytes")
    }
}

/// UTF-8.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Text;

impl Schema for Text {
    type Value = String;

    fn encode(&self, value: &String, into: &mut BytesMut) -> Result<(), SchemaError> {
        into.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn decode(&self, bytes: &Bytes) -> Result<String, SchemaError> {
        Ok(std::str::from_utf8(bytes)?.to_owned())
    }

    fn descriptor(&self) -> SchemaDescriptor {
        SchemaDescriptor::new(SchemaFormat::Text, "text")
    }
}
