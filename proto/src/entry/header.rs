//! The fixed header and the entry as a whole (storage.md 4.2).
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version (1) |
//! | 1 | 1 | class: 0 data, 1 control, 2 meta |
//! | 2 | 2 | flags (0) |
//! | 4 | 8 | ledger |
//! | 12 | 8 | entry |
//! | 20 | 8 | first offset (0 in META) |
//! | 28 | 4 | offset span: last offset + 1 − first offset (0 in META) |
//! | 32 | 4 | record count (0 in META) |
//! | 36 | 8 | lafr (reserved, 0) |
//! | 44 | 8 | cumulative payload bytes of the ledger, this entry included |
//! | 52 | 8 | cumulative digest: wrapping sum of CRC64-NVME(entry, payload), this entry included |
//! | 60 | 4 | envelope length |
//! | 64 | 4 | payload length, envelope included |
//! | 68 | 4 | CRC32C of the payload |
//! | 72 | 4 | CRC32C of bytes 0..72 |
//!
//! Little-endian. Version 1 is frozen: a change of any byte is version 2, which this build refuses (storage.md 4.5).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::checksum::{Crc32c, crc32c, entry_digest};
use crate::id::{EntryId, LedgerId, Offset};
use crate::limits::ENTRY_BYTES_MAX;

/// Length of the fixed header.
pub const HEADER_BYTES: usize = 76;
/// The version that is written, and the only one that is read.
pub(super) const FORMAT_VERSION: u8 = 1;

/// Decides which permits and which disk levels apply (storage.md D1, K1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryClass {
    /// Records.
    Data,
    /// A transaction marker.
    Control,
    /// A delta or snapshot chunk of a state.
    Meta,
}

impl EntryClass {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Data, Self::Control, Self::Meta]
            .get(usize::from(byte))
            .copied()
    }
}

/// What makes two entries the same: checksums of header and payload (storage.md W3, B7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryDigest {
    /// Of the header.
    pub header_crc: u32,
    /// Of the payload.
    pub payload_crc: u32,
}

/// The fixed header, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryHeader {
    /// Class.
    pub class: EntryClass,
    /// Ledger.
    pub ledger: LedgerId,
    /// Number in the ledger.
    pub entry: EntryId,
    /// Offset of the first record; 0 in META.
    pub first_offset: Offset,
    /// Last offset + 1 − first offset; 0 in META.
    pub offset_span: u32,
    /// Records; may be fewer than the span after compaction.
    pub record_count: u32,
    /// Payload bytes of the ledger up to and including this entry.
    pub cumulative_bytes: u64,
    /// Digest of the ledger up to and including this entry.
    pub cumulative_digest: u64,
    /// Length of the envelope.
    pub envelope_len: u32,
    /// Length of envelope and body.
    pub payload_len: u32,
    /// CRC32C of envelope and body.
    pub payload_crc: u32,
    /// CRC32C of the header's other bytes.
    pub header_crc: u32,
}

/// Running totals of a ledger; the last entry's are the ledger's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Payload bytes.
    pub bytes: u64,
    /// Order-free digest.
    pub digest: u64,
}

/// Why bytes are not an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Shorter than it says, or than a header.
    #[error("entry is cut off: {found} bytes of {expected}")]
    CutOff {
        /// There.
        found: usize,
        /// Needed.
        expected: usize,
    },
    /// A length that cannot be.
    #[error(
        "entry claims a payload of {payload} bytes with an envelope of {envelope}; at most {max} are allowed"
    )]
    Length {
        /// Claimed.
        payload: u32,
        /// Claimed.
        envelope: u32,
        /// Allowed.
        max: usize,
    },
    /// Written by another version.
    #[error("entry has format version {0}; this build reads version {FORMAT_VERSION}")]
    Version(u8),
    /// A class this build does not know.
    #[error("entry has unknown class {0}")]
    Class(u8),
    /// The header's checksum is wrong.
    #[error("entry header's checksum is {found:#010x}, its bytes give {computed:#010x}")]
    HeaderCrc {
        /// Stored.
        found: u32,
        /// Computed.
        computed: u32,
    },
    /// The payload's checksum is wrong.
    #[error("entry payload's checksum is {found:#010x}, its bytes give {computed:#010x}")]
    PayloadCrc {
        /// Stored.
        found: u32,
        /// Computed.
        computed: u32,
    },
}

impl EntryHeader {
    /// Decodes and checks the header at the start of `bytes`; what follows is not looked at.
    ///
    /// # Errors
    /// [`EntryError`]; nothing is allocated.
    pub fn decode(bytes: &[u8]) -> Result<Self, EntryError> {
        if bytes.len() < HEADER_BYTES {
            return Err(EntryError::CutOff {
                found: bytes.len(),
                expected: HEADER_BYTES,
            });
        }
        let computed = crc32c(&bytes[..HEADER_BYTES - 4]);
        let mut rest = &bytes[..HEADER_BYTES];
        let version = rest.get_u8();
        if version != FORMAT_VERSION {
            return Err(EntryError::Version(version));
        }
        let class = rest.get_u8();
        let _flags = rest.get_u16_le();
        let ledger = LedgerId(rest.get_u64_le());
        let entry = EntryId(rest.get_u64_le());
        let first_offset = Offset(rest.get_u64_le());
        let offset_span = rest.get_u32_le();
        let record_count = rest.get_u32_le();
        let _lafr = rest.get_u64_le();
        let cumulative_bytes = rest.get_u64_le();
        let cumulative_digest = rest.get_u64_le();
        let envelope_len = rest.get_u32_le();
        let payload_len = rest.get_u32_le();
        let payload_crc = rest.get_u32_le();
        let header_crc = rest.get_u32_le();
        if header_crc != computed {
            return Err(EntryError::HeaderCrc {
                found: header_crc,
                computed,
            });
        }
        let class = EntryClass::from_byte(class).ok_or(EntryError::Class(class))?;
        let max = ENTRY_BYTES_MAX - HEADER_BYTES;
        if envelope_len > payload_len || payload_len as usize > max {
            return Err(EntryError::Length {
                payload: payload_len,
                envelope: envelope_len,
                max,
            });
        }
        Ok(Self {
            class,
            ledger,
            entry,
            first_offset,
            offset_span,
            record_count,
            cumulative_bytes,
            cumulative_digest,
            envelope_len,
            payload_len,
            payload_crc,
            header_crc,
        })
    }

    fn encode_unchecked(&self, out: &mut impl BufMut) {
        out.put_u8(FORMAT_VERSION);
        out.put_u8(self.class as u8);
        out.put_u16_le(0);
        out.put_u64_le(self.ledger.0);
        out.put_u64_le(self.entry.0);
        out.put_u64_le(self.first_offset.0);
        out.put_u32_le(self.offset_span);
        out.put_u32_le(self.record_count);
        out.put_u64_le(0);
        out.put_u64_le(self.cumulative_bytes);
        out.put_u64_le(self.cumulative_digest);
        out.put_u32_le(self.envelope_len);
        out.put_u32_le(self.payload_len);
        out.put_u32_le(self.payload_crc);
    }

    /// The 76 bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut out = &mut bytes[..];
        self.encode_unchecked(&mut out);
        out.put_u32_le(self.header_crc);
        bytes
    }

    /// What identifies the content.
    pub fn digest(&self) -> EntryDigest {
        EntryDigest {
            header_crc: self.header_crc,
            payload_crc: self.payload_crc,
        }
    }

    /// Header and payload together.
    pub fn entry_len(&self) -> usize {
        HEADER_BYTES + self.payload_len as usize
    }

    /// Exclusive end of the offsets.
    pub fn end_offset(&self) -> Offset {
        Offset(self.first_offset.0 + u64::from(self.offset_span))
    }

    /// The ledger's totals up to and including this entry.
    pub fn totals(&self) -> Totals {
        Totals {
            bytes: self.cumulative_bytes,
            digest: self.cumulative_digest,
        }
    }
}

/// What the owner puts into an entry; numbers and totals come from the ledger's writer.
#[derive(Debug, Clone)]
pub struct NewEntry {
    /// Class.
    pub class: EntryClass,
    /// Offset of the first record; 0 in META.
    pub first_offset: Offset,
    /// 0 in META.
    pub offset_span: u32,
    /// 0 in META.
    pub record_count: u32,
    /// The encoded envelope.
    pub envelope: Bytes,
    /// What the envelope describes, in parts that are never joined on the way to the disk.
    pub body: Vec<Bytes>,
}

impl NewEntry {
    /// Length of envelope and body.
    pub fn payload_len(&self) -> usize {
        self.envelope.len() + self.body.iter().map(Bytes::len).sum::<usize>()
    }

    /// Gives it its place in a ledger. `before` are the ledger's totals without it.
    ///
    /// # Panics
    /// If the entry is longer than [`ENTRY_BYTES_MAX`]: the caller coalesces below that.
    pub fn seal(self, ledger: LedgerId, entry: EntryId, before: Totals) -> Entry {
        let payload_len = self.payload_len();
        assert!(
            payload_len + HEADER_BYTES <= ENTRY_BYTES_MAX,
            "entry of {payload_len} bytes is longer than the limit; the owner must coalesce less"
        );
        let envelope_len = self.envelope.len() as u32;
        let mut parts = Vec::with_capacity(self.body.len() + 1);
        parts.push(self.envelope);
        parts.extend(self.body);
        let mut crc = Crc32c::default();
        parts.iter().for_each(|part| crc.update(part));
        let mut header = EntryHeader {
            class: self.class,
            ledger,
            entry,
            first_offset: self.first_offset,
            offset_span: self.offset_span,
            record_count: self.record_count,
            cumulative_bytes: before.bytes + payload_len as u64,
            cumulative_digest: before.digest.wrapping_add(entry_digest(entry.0, &parts)),
            envelope_len,
            payload_len: payload_len as u32,
            payload_crc: crc.finish(),
            header_crc: 0,
        };
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES);
        header.encode_unchecked(&mut bytes);
        header.header_crc = crc32c(&bytes);
        Entry { header, parts }
    }
}

/// An entry: header and payload. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Entry {
    header: EntryHeader,
    parts: Vec<Bytes>,
}

impl Entry {
    /// Decodes one entry that fills `bytes` exactly, and checks both checksums.
    ///
    /// # Errors
    /// [`EntryError`]. Nothing is copied: the payload is a slice of `bytes`.
    pub fn decode(bytes: Bytes) -> Result<Self, EntryError> {
        let header = EntryHeader::decode(&bytes)?;
        if bytes.len() != header.entry_len() {
            return Err(EntryError::CutOff {
                found: bytes.len(),
                expected: header.entry_len(),
            });
        }
        let payload = bytes.slice(HEADER_BYTES..);
        let computed = crc32c(&payload);
        if computed != header.payload_crc {
            return Err(EntryError::PayloadCrc {
                found: header.payload_crc,
                computed,
            });
        }
        Ok(Self {
            header,
            parts: vec![payload],
        })
    }

    /// Puts an entry together from its encoded header and the pieces of its payload, as a wire carries them. The header's checksum is
    /// checked and the payload's is not: whoever stores the entry or hands it on calls [`Entry::verify`].
    ///
    /// # Errors
    /// [`EntryError`], also when the pieces are not as long as the header says. Nothing is copied.
    pub fn from_parts(header: &[u8], parts: Vec<Bytes>) -> Result<Self, EntryError> {
        let header = EntryHeader::decode(header)?;
        let found = parts.iter().map(Bytes::len).sum::<usize>();
        if found != header.payload_len as usize {
            return Err(EntryError::CutOff {
                found: found + HEADER_BYTES,
                expected: header.entry_len(),
            });
        }
        Ok(Self { header, parts })
    }

    /// Checks the payload against the header: a bookie does so before it stores (storage.md B0, W3).
    ///
    /// # Errors
    /// [`EntryError::PayloadCrc`].
    pub fn verify(&self) -> Result<(), EntryError> {
        let mut crc = Crc32c::default();
        self.parts.iter().for_each(|part| crc.update(part));
        let computed = crc.finish();
        if computed != self.header.payload_crc {
            return Err(EntryError::PayloadCrc {
                found: self.header.payload_crc,
                computed,
            });
        }
        Ok(())
    }

    /// What this entry adds to its ledger's digest, from its bytes; the digest up to it stands in the header (storage.md 4.2).
    pub fn digest_share(&self) -> u64 {
        entry_digest(self.header.entry.0, &self.parts)
    }

    /// The header.
    pub fn header(&self) -> &EntryHeader {
        &self.header
    }

    /// Envelope and body, in order, in one or several parts.
    pub fn payload_parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Writes the entry: 76 bytes and the payload.
    pub fn encode_into(&self, out: &mut impl BufMut) {
        out.put_slice(&self.header.encode());
        for part in &self.parts {
            out.put_slice(part);
        }
    }

    /// The encoded envelope. No copy: it stands whole in the first part of every entry that is sealed or decoded.
    pub fn envelope(&self) -> Bytes {
        let len = self.header.envelope_len as usize;
        match self.parts.first() {
            Some(first) if first.len() >= len => first.slice(..len),
            _ => self.joined().slice(..len),
        }
    }

    /// What the envelope describes, as one run of bytes. A copy only where the parts are still apart (the owner's own tail).
    pub fn body(&self) -> Bytes {
        self.joined().slice(self.header.envelope_len as usize..)
    }

    fn joined(&self) -> Bytes {
        if let [only] = &self.parts[..] {
            return only.clone();
        }
        let mut all = BytesMut::with_capacity(self.header.payload_len as usize);
        self.parts.iter().for_each(|part| all.put_slice(part));
        all.freeze()
    }
}
