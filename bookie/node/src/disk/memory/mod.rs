//! A disk in memory that forgets, tears and lies as real ones do (storage.md §11).
//!
//! A file's bytes are kept twice, as readers see them and as the medium has them, with the writes between the two.

mod content;
mod faults;
mod memory_disk;
mod memory_file;
mod names;

pub use content::Survival;
pub use faults::{Calls, Fault};
pub use memory_disk::{DiskCounts, MemoryDisk};
