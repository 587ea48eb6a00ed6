//! Builds groups: what one sync makes durable. No I/O, no clock.
//!
//! Records are copied once, into the buffer that the log writes as it is; its first bytes are kept free for the header, which is
//! filled in when the group's place in the log is known.

use hulse_proto::bookie::Origin;
use hulse_proto::entry::{Crc32c, Entry};
use hulse_proto::id::EntryId;

use super::format::record::{Record, encode_entry};
use super::format::{GROUP_HEADER_BYTES, GroupHeader, LogPosition, padded};

/// Where a record stands in its group: from the group's first byte, header included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InGroup {
    /// Offset of the frame.
    pub at: u32,
    /// Length of frame and content.
    pub bytes: u32,
}

/// A group that collects records.
pub struct GroupBuilder {
    buffer: Vec<u8>,
    crc: Crc32c,
    records: u32,
}

impl GroupBuilder {
    /// An empty group in a buffer that is used again.
    pub fn new(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(GROUP_HEADER_BYTES, 0);
        Self {
            buffer,
            crc: Crc32c::default(),
            records: 0,
        }
    }

    /// True without records.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Bytes so far, header included and padding not.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Adds an entry.
    pub fn push_entry(&mut self, entry: &Entry, origin: Origin, confirmed_end: EntryId) -> InGroup {
        let at = self.buffer.len();
        encode_entry(entry, origin, confirmed_end, &mut self.buffer);
        self.pushed(at)
    }

    /// Adds any other record.
    pub fn push(&mut self, record: &Record) -> InGroup {
        let at = self.buffer.len();
        record.encode(&mut self.buffer);
        self.pushed(at)
    }

    /// Adds the bytes of a record of another group.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> InGroup {
        let at = self.buffer.len();
        self.buffer.extend_from_slice(bytes);
        self.pushed(at)
    }

    fn pushed(&mut self, at: usize) -> InGroup {
        self.crc.update(&self.buffer[at..]);
        self.records += 1;
        InGroup {
            at: at as u32,
            bytes: (self.buffer.len() - at) as u32,
        }
    }

    /// A group with only the named records of this one, in order, and their new places.
    pub fn retain(self, kept: &[InGroup]) -> (Self, Vec<InGroup>) {
        let mut next = Self::new(Vec::with_capacity(self.buffer.len()));
        let places = kept
            .iter()
            .map(|place| {
                let at = place.at as usize;
                next.push_bytes(&self.buffer[at..at + place.bytes as usize])
            })
            .collect();
        (next, places)
    }

    /// Pads to the block boundary. No more records.
    pub fn finish(mut self) -> GroupBytes {
        let body = self.buffer.len() - GROUP_HEADER_BYTES;
        self.buffer.resize(padded(self.buffer.len()), 0);
        GroupBytes {
            body_bytes: body as u32,
            body_crc: self.crc.finish(),
            records: self.records,
            buffer: self.buffer,
        }
    }
}

/// A finished group without a place yet.
pub struct GroupBytes {
    buffer: Vec<u8>,
    body_bytes: u32,
    body_crc: u32,
    records: u32,
}

/// What the log knows when it places a group.
#[derive(Debug, Clone, Copy)]
pub struct Placement {
    /// Salt of the file.
    pub salt: u64,
    /// The group's number.
    pub sequence: u64,
    /// Where in the file.
    pub offset: u64,
    /// What is durable by now.
    pub synced: LogPosition,
}

impl GroupBytes {
    /// Length, padding included.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Fills in the header. [`GroupBytes::placed`] is what is written at the place then.
    pub fn place(&mut self, placement: &Placement) -> GroupHeader {
        let header = GroupHeader {
            sequence: placement.sequence,
            offset: placement.offset,
            body_bytes: self.body_bytes,
            records: self.records,
            synced: placement.synced,
            body_crc: self.body_crc,
        };
        self.buffer[..GROUP_HEADER_BYTES].copy_from_slice(&header.encode(placement.salt));
        header
    }

    /// Header, records and padding.
    pub fn placed(&self) -> &[u8] {
        &self.buffer
    }

    /// The buffer, to be used again.
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}
