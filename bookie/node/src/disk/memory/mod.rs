//! A disk in memory that forgets, tears and lies as real ones do (storage.md §11).
//!
//! A file's bytes are kept twice, as readers see them and as the medium has them, with the writes between the two.

mod content;
mod memory_disk;

pub use content::Survival;
pub use memory_disk::{DiskCounts, MemoryDisk};
