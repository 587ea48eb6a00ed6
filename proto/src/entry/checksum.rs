//! The checksums of the formats: CRC32C for bytes at rest, CRC64-NVME for the order-free ledger digest.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC32C (Castagnoli) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC32C of bytes that come in parts.
pub struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    /// Adds the next part.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all parts.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// CRC64-NVME of an entry's number and payload: one summand of a ledger's digest.
pub(super) fn entry_digest(entry: u64, parts: &[bytes::Bytes]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(&entry.to_le_bytes());
    for part in parts {
        digest.update(part);
    }
    digest.finalize()
}
