//! Reads the groups of one log file: the next one, or the next that is valid after a hole.

use std::sync::Arc;

use super::format::{BLOCK_BYTES, GROUP_HEADER_BYTES, GroupError, GroupHeader};
use super::mend::mended_header;
use crate::disk::{DiskError, DiskFile};

/// One read of the scan.
const CHUNK_BYTES: usize = 4 << 20;

/// A file and a window over its bytes.
pub struct FileScan {
    file: Arc<dyn DiskFile>,
    salt: u64,
    limit: u64,
    window: Vec<u8>,
    window_at: u64,
    read_bytes: u64,
}

impl FileScan {
    /// Begins a scan of bytes below `limit`.
    pub fn new(file: Arc<dyn DiskFile>, salt: u64, limit: u64) -> Self {
        Self {
            file,
            salt,
            limit,
            window: Vec::new(),
            window_at: 0,
            read_bytes: 0,
        }
    }

    /// Exclusive end of what is scanned.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes read so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// `len` bytes at `offset`, fewer at the limit.
    fn view(&mut self, offset: u64, len: usize) -> Result<&[u8], DiskError> {
        let wanted = len.min(usize::try_from(self.limit.saturating_sub(offset)).unwrap_or(len));
        let inside = offset >= self.window_at
            && offset + wanted as u64 <= self.window_at + self.window.len() as u64;
        if !inside {
            let left = usize::try_from(self.limit.saturating_sub(offset)).unwrap_or(usize::MAX);
            self.window = self
                .file
                .read_at(offset, wanted.max(CHUNK_BYTES).min(left))?;
            self.window_at = offset;
            self.read_bytes += self.window.len() as u64;
        }
        let from = ((offset - self.window_at) as usize).min(self.window.len());
        let end = (from + wanted).min(self.window.len());
        Ok(&self.window[from..end])
    }

    /// The group at `offset`, header and records checked.
    pub fn group_at(
        &mut self,
        offset: u64,
    ) -> Result<Result<(GroupHeader, &[u8]), GroupError>, DiskError> {
        let salt = self.salt;
        let header = match GroupHeader::decode(self.view(offset, GROUP_HEADER_BYTES)?, salt, offset)
        {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        let len = GROUP_HEADER_BYTES + header.body_bytes as usize;
        let bytes = self.view(offset, len)?;
        Ok(header.body(bytes).map(|body| (header, body)))
    }

    /// The header of the group at `offset`, also when one bit of it is wrong, and its body, whatever is in it; `None` without a header,
    /// or when it is cut off.
    pub fn body_at(&mut self, offset: u64) -> Result<Option<(GroupHeader, &[u8])>, DiskError> {
        let salt = self.salt;
        let bytes = self.view(offset, GROUP_HEADER_BYTES)?;
        let header = GroupHeader::decode(bytes, salt, offset).ok();
        let Some(header) = header.or_else(|| mended_header(bytes, salt, offset)) else {
            return Ok(None);
        };
        let len = GROUP_HEADER_BYTES + header.body_bytes as usize;
        let body = self.view(offset, len)?.get(GROUP_HEADER_BYTES..len);
        Ok(body.map(|body| (header, body)))
    }

    /// The first valid header at or after the block boundary `from`. Its records may be torn.
    pub fn next_header(&mut self, from: u64) -> Result<Option<GroupHeader>, DiskError> {
        let mut at = from;
        while at < self.limit {
            let Some(data) = self.file.next_data(at)? else {
                return Ok(None);
            };
            at = at.max(data - data % BLOCK_BYTES as u64);
            let stop = at + CHUNK_BYTES as u64;
            while at < stop.min(self.limit) {
                let salt = self.salt;
                let bytes = self.view(at, GROUP_HEADER_BYTES)?;
                if let Ok(header) = GroupHeader::decode(bytes, salt, at) {
                    return Ok(Some(header));
                }
                at += BLOCK_BYTES as u64;
            }
        }
        Ok(None)
    }

    /// The first whole valid group at or after `from` with at least this number.
    pub fn next_group(
        &mut self,
        from: u64,
        sequence: u64,
    ) -> Result<Option<GroupHeader>, DiskError> {
        let mut at = from;
        while let Some(header) = self.next_header(at)? {
            if header.sequence >= sequence && self.group_at(header.offset)?.is_ok() {
                return Ok(Some(header));
            }
            at = header.offset + BLOCK_BYTES as u64;
        }
        Ok(None)
    }

    /// The highest durable end that any valid header at or after `from` states, and whether there is any behind the hole. A header
    /// right at the hole (`hole`, in this file) proves nothing by its being there: a process that is killed leaves a write half
    /// done.
    pub fn evidence(&mut self, from: u64, hole: Option<u64>) -> Result<Evidence, DiskError> {
        let mut found = Evidence::default();
        let mut at = from;
        while let Some(header) = self.next_header(at)? {
            found.any |= hole != Some(header.offset);
            found.synced = found.synced.max(header.synced);
            // Bytes of a user inside a whole group are not looked at: they could imitate a header.
            let whole = self.group_at(header.offset)?.is_ok();
            at = header.offset
                + if whole {
                    header.padded_bytes()
                } else {
                    BLOCK_BYTES as u64
                };
        }
        Ok(found)
    }
}

/// What later groups say of a hole before them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence {
    /// The highest durable end that any states.
    pub synced: super::format::LogPosition,
    /// There is at least one.
    pub any: bool,
}

impl Evidence {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            synced: self.synced.max(other.synced),
            any: self.any || other.any,
        }
    }
}
