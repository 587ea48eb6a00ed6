//! References: what the disk itself does with plain writes in the same directory.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

fn create(folder: &Path, name: &str) -> anyhow::Result<File> {
    Ok(OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(folder.join(name))?)
}

/// MB/s of `write` + `fdatasync` in pieces of `piece` bytes; `total` bytes are written.
pub(crate) fn write_and_sync(folder: &Path, piece: usize, total: usize) -> anyhow::Result<f64> {
    let name = "reference";
    let mut file = create(folder, name)?;
    let bytes = incompressible(piece);
    let began = Instant::now();
    for _ in 0..total / piece {
        file.write_all(&bytes)?;
        file.sync_data()?;
    }
    let rate = megabytes(total / piece * piece, began.elapsed());
    std::fs::remove_file(folder.join(name))?;
    Ok(rate)
}

/// Best of 1, 2, 4 and 8 MiB pieces.
pub(crate) fn best_write_and_sync(folder: &Path, total: usize) -> anyhow::Result<f64> {
    let mut best = 0.0_f64;
    for piece in [1 << 20, 2 << 20, 4 << 20, 8 << 20] {
        best = best.max(write_and_sync(folder, piece, total / 4)?);
    }
    Ok(best)
}

/// MB/s of plain `write` into the page cache, not synced; the file is removed.
pub(crate) fn write_into_memory(folder: &Path, total: usize) -> anyhow::Result<f64> {
    let name = "reference";
    let bytes = incompressible(1 << 20);
    let mut file = create(folder, name)?;
    let began = Instant::now();
    for _ in 0..total / bytes.len() {
        file.write_all(&bytes)?;
    }
    let rate = megabytes(total, began.elapsed());
    std::fs::remove_file(folder.join(name))?;
    Ok(rate)
}

/// Median time of one small append with `fdatasync`.
pub(crate) fn one_sync(folder: &Path, rounds: usize) -> anyhow::Result<Duration> {
    let name = "reference";
    let mut file = create(folder, name)?;
    let bytes = incompressible(4096);
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let began = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    std::fs::remove_file(folder.join(name))?;
    Ok(super::table::median(&mut times))
}

pub(crate) fn megabytes(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

/// Bytes that no layer can shrink.
pub(crate) fn incompressible(len: usize) -> Vec<u8> {
    use rand::RngCore;
    use rand_chacha::rand_core::SeedableRng;
    let mut bytes = vec![0; len];
    rand_chacha::ChaCha8Rng::seed_from_u64(7).fill_bytes(&mut bytes);
    bytes
}

/// Makes the next reads of these files come from the device: syncs, then drops what the kernel keeps of files, of all of them where
/// that is permitted. How it was done, in words.
pub(crate) fn forget_pages(folder: &Path) -> anyhow::Result<&'static str> {
    use bookie_node::{Disk as _, OsDisk};
    let disk = OsDisk::open(folder)?;
    for name in disk.list()? {
        disk.open(&name)?.settle()?;
    }
    Ok(match std::fs::write("/proc/sys/vm/drop_caches", "3") {
        Ok(()) => "all of the page cache was dropped (drop_caches)",
        Err(_) => {
            "the log's pages were dropped from the page cache (fadvise; drop_caches is not permitted)"
        }
    })
}

/// The so many hundredths of sorted values.
pub(crate) fn percentile<T: Copy>(sorted: &[T], hundredths: f64) -> T {
    let at = (sorted.len() as f64 * hundredths / 100.0) as usize;
    sorted[at.min(sorted.len() - 1)]
}
