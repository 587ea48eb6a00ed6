//! The bare disk meanwhile: a small append and its sync, again and again, on a file beside the cluster's.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::super::disk::{incompressible, percentile};

/// Between two appends: often enough to see what the disk is like, too seldom to be a load.
const PAUSE: Duration = Duration::from_millis(20);
const BYTES: usize = 4096;

/// A control that runs.
pub(crate) struct Control {
    over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Vec<Duration>>>,
}

/// How long its syncs took, sorted; never empty.
pub(crate) struct Syncs(Vec<Duration>);

impl Control {
    /// On the disk that holds `folder`.
    pub(crate) fn begin(folder: &Path) -> anyhow::Result<Self> {
        let mut file = File::create(folder.join("control"))?;
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let bytes = incompressible(BYTES);
            let mut times = Vec::new();
            while times.is_empty() || !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                file.write_all(&bytes)?;
                file.sync_data()?;
                times.push(began.elapsed());
                std::thread::sleep(PAUSE);
            }
            Ok(times)
        });
        Ok(Self { over, thread })
    }

    pub(crate) fn end(self) -> anyhow::Result<Syncs> {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        let mut times = ended.map_err(|_| anyhow::anyhow!("the control panicked"))??;
        times.sort_unstable();
        Ok(Syncs(times))
    }
}

impl Syncs {
    pub(crate) fn worst(&self) -> Duration {
        percentile(&self.0, 100.0)
    }

    pub(crate) fn median(&self) -> Duration {
        percentile(&self.0, 50.0)
    }

    pub(crate) fn p99(&self) -> Duration {
        percentile(&self.0, 99.0)
    }
}
