//! Who a task is and what it reads.

use std::fmt;

/// One running copy of one stage of a function (compute.md B3). Its text is its transactional id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The function's name.
    pub function: String,
    /// Grows with each reset or upgrade; another generation has other ids, and another changelog (B12).
    pub generation: u32,
    /// Stage of the plan, from 0.
    pub stage: u16,
    /// Shard of the stage, from 0.
    pub shard: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            function,
            generation,
            stage,
            shard,
        } = self;
        write!(f, "fn/{function}/{generation}/{stage}/{shard}")
    }
}

/// A partition that a task reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InputPartition {
    /// Which of the function's input topics, from 0.
    pub input: u16,
    /// Index of the partition in that topic.
    pub partition: u32,
}

impl fmt::Display for InputPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.input, self.partition)
    }
}

/// What the state of a function means: kinds of operators, schemas of keys and rows, windows (compute.md C2.6). State that was
/// written under another one is refused, never reinterpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Of a description, by FNV-1a of 64 bits: the same on every machine and in every version.
    pub fn of(description: &str) -> Self {
        const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let hash = description.bytes().fold(BASIS, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(PRIME)
        });
        Self(hash)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
