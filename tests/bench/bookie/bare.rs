//! The control of compaction's row: appends with a sync each on the bare disk, alone and beside a plain copy at compaction's rate.
//!
//! What the copy does to these appends, it does to any log on this disk, whoever writes it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::disk::incompressible;

/// One append, bytes.
const APPEND_BYTES: usize = 16 << 10;
/// The file that is copied over and over, bytes.
const COPY_BYTES: u64 = 512 << 20;
/// One piece of the copy, which is synced after each.
const PIECE_BYTES: usize = 1 << 20;

/// Times of appends, sorted: alone, and beside a copy that reads and writes so many bytes per second together.
pub(super) fn appends(
    folder: &Path,
    run: Duration,
    rate: u64,
) -> anyhow::Result<[Vec<Duration>; 2]> {
    let source = open(folder, "bare-source")?;
    let piece = incompressible(PIECE_BYTES);
    for at in (0..COPY_BYTES).step_by(PIECE_BYTES) {
        source.write_all_at(&piece, at)?;
    }
    source.sync_all()?;
    let alone = append_for(folder, run)?;
    let stop = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        let copying = scope.spawn(|| copy(folder, &source, rate, &stop));
        let times = append_for(folder, run);
        stop.store(true, Ordering::Relaxed);
        copying.join().expect("the copy does not panic")?;
        times
    })?;
    for name in ["bare-source", "bare-copy", "bare-log"] {
        std::fs::remove_file(folder.join(name))?;
    }
    Ok([alone, beside])
}

fn open(folder: &Path, name: &str) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).read(true).write(true);
    Ok(options.open(folder.join(name))?)
}

fn append_for(folder: &Path, run: Duration) -> anyhow::Result<Vec<Duration>> {
    let log = open(folder, "bare-log")?;
    rustix::fs::fallocate(&log, rustix::fs::FallocateFlags::empty(), 0, COPY_BYTES)?;
    let bytes = incompressible(APPEND_BYTES);
    let (mut times, mut at) = (Vec::new(), 0);
    let began = Instant::now();
    while began.elapsed() < run && at + APPEND_BYTES as u64 <= COPY_BYTES {
        let before = Instant::now();
        log.write_all_at(&bytes, at)?;
        log.sync_data()?;
        times.push(before.elapsed());
        at += APPEND_BYTES as u64;
        // As a producer at a steady rate leaves the disk some rest.
        std::thread::sleep(Duration::from_micros(500));
    }
    times.sort_unstable();
    Ok(times)
}

fn copy(folder: &Path, source: &File, rate: u64, stop: &AtomicBool) -> anyhow::Result<()> {
    let target = open(folder, "bare-copy")?;
    rustix::fs::fallocate(&target, rustix::fs::FallocateFlags::empty(), 0, COPY_BYTES)?;
    let mut piece = vec![0; PIECE_BYTES];
    let began = Instant::now();
    let mut copied = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let at = copied % COPY_BYTES;
        source.read_exact_at(&mut piece, at)?;
        target.write_all_at(&piece, at)?;
        target.sync_data()?;
        copied += PIECE_BYTES as u64;
        let due = Duration::from_secs_f64(2.0 * copied as f64 / rate as f64);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    Ok(())
}
