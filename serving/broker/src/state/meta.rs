//! M: what follows from META deltas alone.

use std::fmt::Debug;

use bytes::Bytes;

use super::record::RecordError;

/// A deterministic fold of META deltas.
pub trait MetaState: Debug + Clone + Default + PartialEq + Send + 'static {
    /// One change.
    type Delta: Debug + Clone + Send + 'static;

    /// Folds one change in.
    fn apply(&mut self, delta: &Self::Delta);
    /// The bytes of a change.
    fn encode_delta(delta: &Self::Delta) -> Bytes;
    /// Reads a change.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are none.
    fn decode_delta(bytes: &[u8]) -> Result<Self::Delta, RecordError>;
    /// The bytes of a snapshot.
    fn encode(&self) -> Bytes;
    /// Reads a snapshot.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are none.
    fn decode(bytes: &[u8]) -> Result<Self, RecordError>;
}

/// The M of a partition without subscriptions: nothing to remember, and a delta is an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoMeta;

/// No value exists.
#[derive(Debug, Clone, Copy)]
pub enum NoDelta {}

impl MetaState for NoMeta {
    type Delta = NoDelta;

    fn apply(&mut self, delta: &NoDelta) {
        match *delta {}
    }

    fn encode_delta(delta: &NoDelta) -> Bytes {
        match *delta {}
    }

    fn decode_delta(bytes: &[u8]) -> Result<NoDelta, RecordError> {
        Err(RecordError::Field {
            field: "delta (this build knows none)",
            found: bytes.len() as u64,
        })
    }

    fn encode(&self) -> Bytes {
        Bytes::new()
    }

    fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.is_empty() {
            Ok(Self)
        } else {
            Err(RecordError::Field {
                field: "meta state (this build knows none)",
                found: bytes.len() as u64,
            })
        }
    }
}
