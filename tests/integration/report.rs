//! Words for the summary that `tests/run` prints.

use std::io::Write;
use std::path::PathBuf;

/// Adds a line to the summary and prints it.
pub(crate) fn report(line: &str) {
    println!("{line}");
    if let Some(path) = std::env::var_os("HULSE_TEST_REPORT") {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        file.and_then(|mut file| writeln!(file, "{line}"))
            .expect("the report file can be written");
    }
}

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
