//! Entries and heads as runs of pieces: what a message carries as bytes, and the codec never joins.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hulse_proto::bookie::{EntryHead, StoredEntry};
use hulse_proto::entry::{Entry, EntryHeader, HEADER_BYTES};
use hulse_proto::id::EntryId;

use super::Malformed;

/// Pieces of one payload at most; one in more parts is joined before it is sent.
const PAYLOAD_PIECES_MAX: usize = 1_100;
/// Before an entry's header in an answer: the confirmed end that its add carried.
const CONFIRMED_BYTES: usize = 8;

/// The header, then the payload.
pub(super) fn entry_pieces(entry: &Entry) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(1 + entry.payload_parts().len());
    pieces.push(Bytes::copy_from_slice(&entry.header().encode()));
    push_payload(entry, &mut pieces);
    pieces
}

fn push_payload(entry: &Entry, pieces: &mut Vec<Bytes>) {
    let parts = entry.payload_parts();
    if parts.len() <= PAYLOAD_PIECES_MAX {
        // An empty part would be a piece that says nothing.
        pieces.extend(parts.iter().filter(|part| !part.is_empty()).cloned());
        return;
    }
    let mut joined = BytesMut::with_capacity(entry.header().payload_len as usize);
    parts.iter().for_each(|part| joined.put_slice(part));
    pieces.push(joined.freeze());
}

/// One entry that fills all of the pieces.
pub(super) fn entry_of(pieces: Vec<Bytes>) -> Result<Entry, Malformed> {
    let mut pieces = pieces.into_iter();
    let header = pieces.next();
    let header = header.ok_or_else(|| Malformed::new("an entry without a header"))?;
    let parts = pieces.collect();
    Entry::from_parts(&header, parts).map_err(|error| Malformed::new(error.to_string()))
}

/// Adds a stored entry to an answer; its bytes on the wire, about.
pub(super) fn push_stored(stored: &StoredEntry, pieces: &mut Vec<Bytes>) -> usize {
    let mut head = BytesMut::with_capacity(CONFIRMED_BYTES + HEADER_BYTES);
    head.put_u64_le(stored.confirmed_end.0);
    head.put_slice(&stored.entry.header().encode());
    pieces.push(head.freeze());
    push_payload(&stored.entry, pieces);
    CONFIRMED_BYTES + stored.entry.header().entry_len()
}

/// Adds a head to an answer; its bytes on the wire, about.
pub(super) fn push_head(head: &EntryHead, pieces: &mut Vec<Bytes>) -> usize {
    pieces.push(Bytes::copy_from_slice(&head.header.encode()));
    if !head.envelope.is_empty() {
        pieces.push(head.envelope.clone());
    }
    HEADER_BYTES + head.envelope.len()
}

/// The payload that follows a header: pieces until they are as long as it says.
fn payload(
    pieces: &mut impl Iterator<Item = Bytes>,
    length: usize,
) -> Result<Vec<Bytes>, Malformed> {
    let mut parts = Vec::new();
    let mut left = length;
    while left > 0 {
        let piece = pieces.next();
        let piece = piece.ok_or_else(|| Malformed::new("an entry is cut off"))?;
        left = left
            .checked_sub(piece.len())
            .filter(|_| !piece.is_empty())
            .ok_or_else(|| Malformed::new("a piece does not fit its entry"))?;
        parts.push(piece);
    }
    Ok(parts)
}

/// The stored entries of an answer. Checksums of payloads are not looked at.
///
/// # Errors
/// [`Malformed`].
pub fn decode_entries(pieces: Vec<Bytes>) -> Result<Vec<StoredEntry>, Malformed> {
    let mut entries = Vec::new();
    let mut pieces = pieces.into_iter();
    while let Some(mut head) = pieces.next() {
        if head.len() != CONFIRMED_BYTES + HEADER_BYTES {
            return Err(Malformed::new("a header of an entry has another length"));
        }
        let confirmed_end = EntryId(head.get_u64_le());
        let wrong = |error: hulse_proto::entry::EntryError| Malformed::new(error.to_string());
        let header = EntryHeader::decode(&head).map_err(wrong)?;
        let parts = payload(&mut pieces, header.payload_len as usize)?;
        let entry = Entry::from_parts(&head, parts).map_err(wrong)?;
        entries.push(StoredEntry {
            entry,
            confirmed_end,
        });
    }
    Ok(entries)
}

/// The heads of an answer.
///
/// # Errors
/// [`Malformed`].
pub fn decode_heads(pieces: Vec<Bytes>) -> Result<Vec<EntryHead>, Malformed> {
    let mut heads = Vec::new();
    let mut pieces = pieces.into_iter();
    while let Some(head) = pieces.next() {
        if head.len() != HEADER_BYTES {
            return Err(Malformed::new("a header of a head has another length"));
        }
        let header =
            EntryHeader::decode(&head).map_err(|error| Malformed::new(error.to_string()))?;
        let envelope = match header.envelope_len as usize {
            0 => Bytes::new(),
            length => pieces
                .next()
                .filter(|envelope| envelope.len() == length)
                .ok_or_else(|| Malformed::new("a head without its envelope"))?,
        };
        heads.push(EntryHead { header, envelope });
    }
    Ok(heads)
}
