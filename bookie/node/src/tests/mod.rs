//! Tests of the whole node: over real files, and step by step over a disk that forgets.

mod corruption;
mod crash_points;
mod dead_below;
mod disk_full;
mod disks;
mod fences;
mod formats;
mod identity;
mod node;
mod replay;
mod support;
mod torn_tail;
