//! Records on standard output.

use std::io::Write as _;

use hulse_sdk::ReadRecord;

use crate::commands::session::Session;
use crate::failure::Stop;
use crate::format::{HeaderView, Printer, RecordView, write_record};

/// Written to standard output at a time, about.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Writes what is printed, if anything is.
///
/// # Errors
/// The reader is gone, or the output cannot be written.
pub(super) fn write(out: &mut Vec<u8>) -> Result<(), Stop> {
    if out.is_empty() {
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(out)?;
    stdout.flush()?;
    out.clear();
    Ok(())
}

/// Prints a record.
pub(super) fn print(
    session: Session<'_>,
    printer: &mut Printer,
    topic: &str,
    record: &ReadRecord,
    out: &mut Vec<u8>,
) {
    let headers: Vec<HeaderView<'_>> = record
        .headers
        .iter()
        .map(|header| (&header.key[..], header.value.as_deref()))
        .collect();
    let view = RecordView {
        topic,
        partition: record.partition,
        offset: record.offset.0,
        timestamp: record.timestamp,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &headers,
    };
    write_record(session.output.shape, printer, &view, out);
}
