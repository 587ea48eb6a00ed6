//! One file's bytes, and what a crash leaves of them.

use rand::RngCore;

/// Which unsynced bytes survive a crash.
pub enum Survival<'a> {
    /// None.
    Nothing,
    /// All, in order: the process died, the kernel lived.
    Everything,
    /// Any subset: per crash, a mix of whole writes, 512-byte sectors and single bytes.
    Random(&'a mut dyn RngCore),
    /// What the function says of (file name, byte offset).
    Chosen(&'a dyn Fn(&str, u64) -> bool),
}

/// A file: what readers see, and what the medium has.
#[derive(Clone, Default)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) len: u64,
    pub(super) durable_len: u64,
    /// Writes since the last sync: where and what.
    pub(super) unsynced: Vec<(u64, Vec<u8>)>,
}

impl Content {
    pub(super) fn crash(&mut self, name: &str, survival: &mut Survival<'_>) {
        if matches!(survival, Survival::Everything) {
            // The page cache lives: readers see what they saw, and nothing more is durable.
            return;
        }
        let whole = match survival {
            Survival::Random(rng) => rng.next_u32() % 4,
            _ => 0,
        };
        for (at, bytes) in std::mem::take(&mut self.unsynced) {
            let mut kept = false;
            for (index, byte) in bytes.iter().enumerate() {
                let offset = at + index as u64;
                let keep = match survival {
                    Survival::Nothing => false,
                    Survival::Everything => unreachable!("nothing is cut"),
                    Survival::Chosen(choose) => choose(name, offset),
                    Survival::Random(rng) => {
                        // Fresh dice per write (0), per sector (1, 2) or per byte (3).
                        let fresh = match whole {
                            0 => index == 0,
                            3 => true,
                            _ => index == 0 || offset.is_multiple_of(512),
                        };
                        if fresh {
                            kept = rng.next_u32() & 1 == 0;
                        }
                        kept
                    }
                };
                if keep {
                    put(&mut self.durable, offset, &[*byte]);
                }
            }
        }
        self.durable_len = self.durable_len.max(self.durable.len() as u64);
        self.len = self.durable_len;
        self.durable.truncate(self.len as usize);
        self.bytes = self.durable.clone();
    }
}

/// Writes into a vector that grows as needed.
pub(super) fn put(bytes: &mut Vec<u8>, offset: u64, with: &[u8]) {
    let end = offset as usize + with.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset as usize..end].copy_from_slice(with);
}
