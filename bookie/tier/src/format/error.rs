//! Why bytes are not a part of a segment.

use hulse_proto::entry::EntryError;

/// Why bytes are not what they should be. Nothing of them may be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Not the length that it must have.
    #[error("{part} has {found} bytes, expected {expected}")]
    Length {
        /// Of what.
        part: &'static str,
        /// There.
        found: u64,
        /// Needed, or allowed at most.
        expected: u64,
    },
    /// Something else, or zeros.
    #[error("{part} does not begin with its mark")]
    Mark {
        /// Of what.
        part: &'static str,
    },
    /// Another version.
    #[error("{part} has format version {found}; this build reads version 1")]
    Version {
        /// Of what.
        part: &'static str,
        /// There.
        found: u8,
    },
    /// A checksum is wrong.
    #[error("{part}'s checksum is {found:#010x}, its bytes give {computed:#010x}")]
    Checksum {
        /// Of what.
        part: &'static str,
        /// Stored.
        found: u32,
        /// Computed.
        computed: u32,
    },
    /// The checksum is right and the content cannot be: somebody wrote it so.
    #[error("{part} cannot be: {why}")]
    Content {
        /// Of what.
        part: &'static str,
        /// Why.
        why: &'static str,
    },
    /// An entry of a block.
    #[error("entry in a block: {0}")]
    Entry(#[from] EntryError),
}

impl FormatError {
    pub(super) fn length(part: &'static str, found: usize, expected: usize) -> Self {
        let (found, expected) = (found as u64, expected as u64);
        Self::Length {
            part,
            found,
            expected,
        }
    }
}

/// `why` when `fits` is false.
pub(super) fn check(fits: bool, part: &'static str, why: &'static str) -> Result<(), FormatError> {
    match fits {
        true => Ok(()),
        false => Err(FormatError::Content { part, why }),
    }
}

/// Reserved bytes of version 1 are zero: whoever writes others there writes another version.
pub(super) fn zeros(part: &'static str, reserved: &[u8]) -> Result<(), FormatError> {
    check(
        reserved.iter().all(|byte| *byte == 0),
        part,
        "reserved bytes that are not zero",
    )
}

/// The checksum that stands at the end of an index or a directory: what others name it by. The checksum of all its bytes, that one
/// included, would be the same for every one.
pub(crate) fn seal_of(bytes: &[u8]) -> u32 {
    let last = bytes.last_chunk();
    u32::from_le_bytes(last.copied().unwrap_or_default())
}

/// Compares a stored checksum with that of the bytes before it.
pub(super) fn checked(part: &'static str, bytes: &[u8], found: u32) -> Result<(), FormatError> {
    let computed = hulse_proto::entry::crc32c(bytes);
    match computed == found {
        true => Ok(()),
        false => Err(FormatError::Checksum {
            part,
            found,
            computed,
        }),
    }
}
