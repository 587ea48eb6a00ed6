//! Counts that the test command gathers over all test binaries.

use std::fs::OpenOptions;
use std::io::Write;

/// Name of the variable that names the file.
const FILE: &str = "HULSE_TEST_REPORT";

/// Prints a line, and appends it to the file that `HULSE_TEST_REPORT` names.
///
/// # Panics
/// When that file cannot be written: the counts would be wrong without a word.
pub fn report(line: &str) {
    println!("{line}");
    let Some(path) = std::env::var_os(FILE) else {
        return;
    };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.expect("the file named by HULSE_TEST_REPORT can be written");
}
