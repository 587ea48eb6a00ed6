//! Reads checked numbers and bytes.

use bytes::Bytes;

/// Why bytes are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Fewer bytes than the format needs.
    #[error("ends after {bytes} bytes, {needed} more are needed")]
    Truncated {
        /// What is there.
        bytes: usize,
        /// What is missing.
        needed: usize,
    },
    /// More bytes than the format has.
    #[error("{bytes} bytes are left over")]
    LeftOver {
        /// How many.
        bytes: usize,
    },
    /// Not one of ours.
    #[error("begins with {found:#010x}; not written by a function")]
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// Written by a newer version, or by none.
    #[error("has format version {found}; this program reads {supported}")]
    Version {
        /// Found.
        found: u8,
        /// The one that is read.
        supported: u8,
    },
    /// Damaged.
    #[error("checksum is {found:#010x}, its bytes have {computed:#010x}")]
    Checksum {
        /// As stored.
        found: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// A field has a value that cannot be.
    #[error("{field} = {value} cannot be")]
    Field {
        /// Which.
        field: &'static str,
        /// As found.
        value: u64,
    },
    /// Longer than the format can say.
    #[error("{bytes} bytes are more than a field of the format can hold")]
    TooLong {
        /// How long.
        bytes: usize,
    },
    /// The codec of an operator refused.
    #[error("rows: {what}")]
    Rows {
        /// In its words.
        what: String,
    },
}

/// A position in bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    whole: &'a Bytes,
    at: usize,
}

impl<'a> Reader<'a> {
    /// At the start.
    pub fn new(whole: &'a Bytes) -> Self {
        Self { whole, at: 0 }
    }

    /// What is left, bytes.
    pub fn left(&self) -> usize {
        self.whole.len() - self.at
    }

    /// The next `length` bytes, shared with the whole.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn bytes(&mut self, length: usize) -> Result<Bytes, CodecError> {
        if length > self.left() {
            return Err(CodecError::Truncated {
                bytes: self.whole.len(),
                needed: length - self.left(),
            });
        }
        let start = self.at;
        self.at += length;
        Ok(self.whole.slice(start..self.at))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let bytes = self.bytes(N)?;
        let mut array = [0; N];
        array.copy_from_slice(&bytes);
        Ok(array)
    }

    /// One byte.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn u8(&mut self) -> Result<u8, CodecError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Two bytes.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn u16(&mut self) -> Result<u16, CodecError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn u32(&mut self) -> Result<u32, CodecError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn u64(&mut self) -> Result<u64, CodecError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Eight bytes with a sign.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn i64(&mut self) -> Result<i64, CodecError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A `u32` number of items of at least `item_bytes_min` bytes each, all of which must be there.
    ///
    /// # Errors
    /// `Truncated`: so many items are not there. Nothing needs to be allocated to find out.
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize, CodecError> {
        let count = self.u32()? as usize;
        let needed = count.saturating_mul(item_bytes_min);
        match needed > self.left() {
            true => Err(CodecError::Truncated {
                bytes: self.whole.len(),
                needed: needed - self.left(),
            }),
            false => Ok(count),
        }
    }

    /// Nothing is left.
    ///
    /// # Errors
    /// `LeftOver`.
    pub fn end(&self) -> Result<(), CodecError> {
        match self.left() {
            0 => Ok(()),
            bytes => Err(CodecError::LeftOver { bytes }),
        }
    }
}
