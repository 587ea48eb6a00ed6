//! Keys and values as the cache's disk has them.

use std::io::{Read, Write};

use bytes::Bytes;
use foyer::{Code, Error, Result};
use hulse_proto::id::SegmentId;
use uuid::Uuid;

use crate::format::BLOCK_BYTES_MAX;

/// Which block: of which object, beginning at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct BlockKey {
    pub(super) segment: SegmentId,
    pub(super) at: u64,
}

/// A block's bytes, not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CachedBlock(pub(super) Bytes);

impl Code for BlockKey {
    fn encode(&self, writer: &mut impl Write) -> Result<()> {
        let written = writer.write_all(self.segment.0.as_bytes());
        let written = written.and_then(|()| writer.write_all(&self.at.to_le_bytes()));
        written.map_err(Error::io_error)
    }

    fn decode(reader: &mut impl Read) -> Result<Self> {
        let (mut segment, mut at) = ([0; 16], [0; 8]);
        let read = reader.read_exact(&mut segment);
        let read = read.and_then(|()| reader.read_exact(&mut at));
        read.map_err(Error::io_error)?;
        Ok(Self {
            segment: SegmentId(Uuid::from_bytes(segment)),
            at: u64::from_le_bytes(at),
        })
    }

    fn estimated_size(&self) -> usize {
        24
    }
}

impl Code for CachedBlock {
    fn encode(&self, writer: &mut impl Write) -> Result<()> {
        let length = (self.0.len() as u32).to_le_bytes();
        let written = writer.write_all(&length);
        let written = written.and_then(|()| writer.write_all(&self.0));
        written.map_err(Error::io_error)
    }

    fn decode(reader: &mut impl Read) -> Result<Self> {
        let mut length = [0; 4];
        reader.read_exact(&mut length).map_err(Error::io_error)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > BLOCK_BYTES_MAX {
            let why = format!("{length} bytes are longer than a block");
            return Err(Error::new(foyer::ErrorKind::Parse, why));
        }
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes).map_err(Error::io_error)?;
        Ok(Self(bytes.into()))
    }

    fn estimated_size(&self) -> usize {
        4 + self.0.len()
    }
}
