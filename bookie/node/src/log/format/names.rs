//! What the log's files are called: their number, and what they are.

use super::file_header::FileKind;

/// Name of a log file; names sort by number.
pub fn file_name(file: u64) -> String {
    name_of(FileKind::Log, file)
}

/// Name of a file of either kind.
pub fn name_of(kind: FileKind, file: u64) -> String {
    match kind {
        FileKind::Log => format!("{file:020}.log"),
        FileKind::Compacted => format!("{file:020}.cmp"),
    }
}

/// Name of the file that takes a footer which had to be made again (storage.md 4.4).
pub fn side_name(file: u64) -> String {
    format!("{file:020}.idx")
}

/// The number in a log file's name.
pub fn file_number(name: &str) -> Option<u64> {
    number_before(name, ".log")
}

/// Kind and number of a file of either kind.
pub fn kind_and_number(name: &str) -> Option<(FileKind, u64)> {
    let log = file_number(name).map(|file| (FileKind::Log, file));
    log.or_else(|| number_before(name, ".cmp").map(|file| (FileKind::Compacted, file)))
}

/// The number in the name of a footer's own file.
pub fn side_number(name: &str) -> Option<u64> {
    number_before(name, ".idx")
}

fn number_before(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}
