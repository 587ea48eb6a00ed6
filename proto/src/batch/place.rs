//! What an owner does to a batch, and how several batches are told apart.

use bytes::{BufMut, Bytes};

use super::header::LENGTH_END;
use super::{BatchError, BatchHeader};
use crate::id::{Offset, OwnerEpoch};

/// Base offset, length and leader epoch: everything before the magic.
const HEAD_BYTES: usize = 16;

/// Gives a batch its place in the log: a new 16-byte head and the untouched rest, to be written one after the other. The
/// checksummed bytes are the producer's and are not copied.
///
/// # Panics
/// If `batch` is shorter than a head: the caller has verified it.
pub fn place(batch: &Bytes, base_offset: Offset, leader_epoch: OwnerEpoch) -> [Bytes; 2] {
    assert!(
        batch.len() >= HEAD_BYTES,
        "a batch is verified before it is placed"
    );
    let mut head = [0; HEAD_BYTES];
    let mut out = &mut head[..];
    out.put_u64(base_offset.0);
    out.put_slice(&batch[8..LENGTH_END]);
    out.put_u32(leader_epoch.0);
    [Bytes::copy_from_slice(&head), batch.slice(HEAD_BYTES..)]
}

/// The batches that stand back to back in `bytes`, each a slice of it. Lengths and magic are checked, checksums are not.
/// After an error the iterator ends.
pub fn split(bytes: &Bytes) -> Split {
    Split {
        rest: bytes.clone(),
    }
}

/// Iterator of [`split`].
#[derive(Debug, Clone)]
pub struct Split {
    rest: Bytes,
}

impl Iterator for Split {
    type Item = Result<Bytes, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match BatchHeader::view(&self.rest) {
            Ok(header) => Some(Ok(self.rest.split_to(header.length as usize))),
            Err(error) => {
                self.rest.clear();
                Some(Err(error))
            }
        }
    }
}
