//! Kafka's variable-length integers: zigzag, then seven bits a byte, low bits first; and a cursor that cannot leave its bytes.

use super::BatchError;

/// Bytes of a 32-bit varint at most.
const VARINT_BYTES_MAX: usize = 5;
/// Bytes of a 64-bit varint at most.
const VARLONG_BYTES_MAX: usize = 10;

/// Bytes that `value` takes.
pub(super) fn len_i64(value: i64) -> usize {
    let significant = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    significant.div_ceil(7)
}

/// Bytes that a length takes.
pub(super) fn len_usize(value: usize) -> usize {
    len_i64(value as i64)
}

/// Writes `value`. 32-bit and 64-bit values have the same encoding.
pub(super) fn put_i64(out: &mut Vec<u8>, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

/// Reads the records of a batch. Every read is bounded by `end`; errors name the record.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
    /// Which record is being read, for errors.
    pub(super) index: u32,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            end: bytes.len(),
            index: 0,
        }
    }

    /// Bytes left before `end`.
    pub(super) fn left(&self) -> usize {
        self.end - self.at
    }

    /// Ends the readable range after `length` bytes; [`Self::leave`] opens it again.
    pub(super) fn enter(&mut self, length: i32) -> Result<(), BatchError> {
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= self.left())
            .ok_or_else(|| self.wrong("its length does not fit the batch"))?;
        self.end = self.at + length;
        Ok(())
    }

    /// Leaves what [`Self::enter`] entered; all of it must have been read.
    pub(super) fn leave(&mut self) -> Result<(), BatchError> {
        if self.left() != 0 {
            return Err(self.wrong("bytes are left behind its headers"));
        }
        self.end = self.bytes.len();
        Ok(())
    }

    pub(super) fn wrong(&self, what: &'static str) -> BatchError {
        BatchError::Record {
            index: self.index,
            what,
        }
    }

    pub(super) fn byte(&mut self) -> Result<u8, BatchError> {
        if self.at == self.end {
            return Err(self.wrong("it is cut off"));
        }
        self.at += 1;
        Ok(self.bytes[self.at - 1])
    }

    pub(super) fn varint(&mut self) -> Result<i32, BatchError> {
        let raw = self.raw(VARINT_BYTES_MAX)?;
        let raw = u32::try_from(raw).map_err(|_| self.wrong("a number has more than 32 bits"))?;
        Ok(unzigzag(u64::from(raw)) as i32)
    }

    pub(super) fn varlong(&mut self) -> Result<i64, BatchError> {
        self.raw(VARLONG_BYTES_MAX).map(unzigzag)
    }

    fn raw(&mut self, bytes_max: usize) -> Result<u64, BatchError> {
        let mut raw = 0;
        for at in 0..bytes_max {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if at == VARLONG_BYTES_MAX - 1 && bits > 1 {
                return Err(self.wrong("a number has more than 64 bits"));
            }
            raw |= bits << (7 * at);
            if byte & 0x80 == 0 {
                return Ok(raw);
            }
        }
        Err(self.wrong("a number does not end"))
    }

    /// A length and that many bytes, as a range of the whole; −1 is `None`.
    pub(super) fn blob(&mut self) -> Result<Option<std::ops::Range<usize>>, BatchError> {
        let length = self.varint()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= self.left())
            .ok_or_else(|| self.wrong("a key, value or header has a length that does not fit"))?;
        let start = self.at;
        self.at += length;
        Ok(Some(start..self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roundtrip_of_every_width() {
        for shift in 0..64 {
            for value in [
                1_i64 << shift,
                (1_i64 << shift).wrapping_neg(),
                i64::MAX >> shift,
            ] {
                let mut bytes = Vec::new();
                put_i64(&mut bytes, value);
                assert_eq!(bytes.len(), len_i64(value));
                assert_eq!(Cursor::new(&bytes).varlong(), Ok(value));
                match i32::try_from(value) {
                    Ok(narrow) => assert_eq!(Cursor::new(&bytes).varint(), Ok(narrow)),
                    Err(_) => assert!(Cursor::new(&bytes).varint().is_err()),
                }
            }
        }
    }

    #[test]
    fn overlong_and_cut_numbers_are_refused() {
        assert!(Cursor::new(&[0x80; 5]).varint().is_err());
        assert!(
            Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x1f])
                .varint()
                .is_err()
        );
        assert!(Cursor::new(&[0x80; 11]).varlong().is_err());
        let mut wide = [0xff; 10];
        wide[9] = 2;
        assert!(Cursor::new(&wide).varlong().is_err());
        assert!(Cursor::new(&[0x80]).varint().is_err());
        assert!(Cursor::new(&[]).varint().is_err());
    }
}
