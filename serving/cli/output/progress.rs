//! Progress of long work: one line on a terminal, written over again; nothing anywhere else.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::time::Instant;

use super::Output;

/// Between two writings.
const EVERY: Duration = Duration::from_millis(200);
/// Width of the bar.
const CELLS: u64 = 30;

/// A line that tells how far the work is. Its drop clears the line.
pub(crate) struct Progress {
    doing: String,
    total: Option<u64>,
    began: Instant,
    last: Option<Instant>,
    shown: bool,
}

impl Progress {
    /// Of work on `total` units; `None` where nobody knows how many.
    pub(crate) fn new(output: Output, doing: impl Into<String>, total: Option<u64>) -> Self {
        Self {
            doing: doing.into(),
            total,
            began: Instant::now(),
            last: None,
            shown: !output.quiet && std::io::stderr().is_terminal(),
        }
    }

    /// So many units are done.
    pub(crate) fn at(&mut self, done: u64) {
        if !self.shown || self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let line = line(&self.doing, done, self.total, self.began.elapsed());
        let mut stderr = std::io::stderr().lock();
        let _ = write!(stderr, "\r\x1b[2K{line}");
        let _ = stderr.flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.last.is_some() {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
        }
    }
}

fn line(doing: &str, done: u64, total: Option<u64>, took: Duration) -> String {
    let rate = done as f64 / took.as_secs_f64().max(1e-3);
    let Some(total) = total.filter(|total| *total > 0) else {
        return format!(
            "{doing}  {}  {}/s",
            super::grouped(done),
            super::grouped(rate as u64)
        );
    };
    let done = done.min(total);
    let filled = (u128::from(done) * u128::from(CELLS) / u128::from(total)) as usize;
    let bar = format!(
        "{}{}",
        "#".repeat(filled),
        "-".repeat(CELLS as usize - filled)
    );
    let left = (total - done) as f64 / rate.max(1e-3);
    format!(
        "{doing}  [{bar}]  {}%  {}/{}  {}/s  eta {}",
        u128::from(done) * 100 / u128::from(total),
        super::grouped(done),
        super::grouped(total),
        super::grouped(rate as u64),
        match left {
            0.0..60.0 => format!("{left:.0}s"),
            60.0..3600.0 => format!("{}m{:02}s", left as u64 / 60, left as u64 % 60),
            _ => format!("{}h{:02}m", left as u64 / 3600, left as u64 / 60 % 60),
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_tells_share_rate_and_what_is_left() {
        let told = line("copying", 500, Some(2_000), Duration::from_secs(10));
        let bar = format!("[{}{}]", "#".repeat(7), "-".repeat(23));
        assert_eq!(
            told,
            format!("copying  {bar}  25%  500/2,000  50/s  eta 30s")
        );
        let told = line("reading", 1_234, None, Duration::from_secs(1));
        assert_eq!(told, "reading  1,234  1,234/s");
    }
}
