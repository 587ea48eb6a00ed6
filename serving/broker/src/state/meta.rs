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
    /// Nothing is remembered: as at the start.
    fn is_empty(&self) -> bool;
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
