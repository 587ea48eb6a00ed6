//! Tests of the whole node: over real files, and step by step over a disk that forgets.

mod corruption;
mod crash_points;
mod dead_below;
mod disk_full;
mod disks;
mod fences;
mod file_thread;
mod formats;
mod golden;
mod identity;
mod levels;
mod node;
mod proof;
mod reclaim;
mod replay;
mod sealed;
mod support;
mod torn_tail;
