//! Tests of the whole node: over real files, and step by step over a disk that forgets.

mod corruption;
mod crash_points;
mod dead_below;
mod disk_full;
mod disks;
mod fences;
mod file_thread;
mod flips;
mod formats;
mod full_points;
mod golden;
mod identity;
mod io_errors;
mod levels;
mod modes;
mod node;
mod power_loss;
mod proof;
mod provenance;
mod reclaim;
mod reclaim_corners;
mod replay;
mod sealed;
mod support;
mod torn_tail;
