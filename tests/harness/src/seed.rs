//! One root seed, many named streams of chance: adding a draw in one place changes nothing elsewhere.

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// A root seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeds(pub u64);

impl Seeds {
    /// The stream of this name.
    pub fn stream(self, name: &str) -> ChaCha12Rng {
        ChaCha12Rng::from_seed(self.bytes(name))
    }

    /// 32 bytes of this name, for constructors that want a seed.
    pub fn bytes(self, name: &str) -> [u8; 32] {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.0.to_le_bytes());
        seed[8..16].copy_from_slice(&fingerprint(name.as_bytes()).to_le_bytes());
        let mut rng = ChaCha12Rng::from_seed(seed);
        rng.fill_bytes(&mut seed);
        seed
    }

    /// 16 bytes of this name, for identities.
    pub fn id(self, name: &str) -> uuid::Uuid {
        let bytes = self.bytes(name);
        uuid::Uuid::from_slice(&bytes[..16]).expect("16 bytes make an identity")
    }
}

/// FNV-1a, 64 bits. Told apart are at most a few dozen names.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    extend(0xcbf2_9ce4_8422_2325, bytes)
}

/// Goes on with a fingerprint.
pub fn extend(fingerprint: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(fingerprint, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_by_name_and_repeat_by_seed() {
        let first = Seeds(7).stream("disk").next_u64();
        assert_eq!(first, Seeds(7).stream("disk").next_u64());
        assert_ne!(first, Seeds(7).stream("network").next_u64());
        assert_ne!(first, Seeds(8).stream("disk").next_u64());
    }
}
