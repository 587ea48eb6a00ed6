//! Words for the summary that `tests/run` prints.

use std::path::PathBuf;

pub(crate) use tests_harness::report;

/// Where `tests/run` puts what tests read.
pub(crate) fn input(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("HULSE_TEST_INPUTS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/test-inputs"),
        PathBuf::from,
    );
    Some(folder.join(name)).filter(|path| path.exists())
}

/// `short` rounds in each run, `long` with HULSE_LONG=1.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    if std::env::var("HULSE_LONG").is_ok_and(|value| value == "1") {
        long
    } else {
        short
    }
}
