//! Records on standard output: by the format of `-f`, as rows of a table where `--output` names one, or in a form for programs.

use std::io::Write as _;

use hulse_sdk::ReadRecord;

use crate::arguments::Consume;
use crate::commands::session::Session;
use crate::failure::Stop;
use crate::format::{
    FormatError, HeaderView, Printer, RecordView, cell_headings, cells, write_record,
};
use crate::output::{RowByRow, Shape};

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

/// Where nobody names a form: the value, one a line.
const FORMAT: &str = "%v\\n";

/// Prints records.
pub(super) struct Printing {
    shape: Shape,
    printer: Printer,
    /// Where a table was asked for.
    table: Option<Rows>,
}

struct Rows {
    table: RowByRow,
    wide: bool,
    /// There are several topics, so each row names its own.
    topics: bool,
}

impl Printing {
    /// In the form that was asked for.
    ///
    /// # Errors
    /// What is wrong with the format.
    pub(super) fn new(session: Session<'_>, consume: &Consume) -> Result<Self, FormatError> {
        let shape = session.output.shape;
        let wants_table = session.globals.output_named && shape.for_people();
        let table = (wants_table && consume.format.is_none())
            .then(|| Rows::new(shape == Shape::Wide, consume.topics.len() > 1));
        Ok(Self {
            shape,
            printer: Printer::new(consume.format.as_deref().unwrap_or(FORMAT))?,
            table,
        })
    }

    /// Prints a record.
    pub(super) fn print(&mut self, topic: &str, record: &ReadRecord, out: &mut Vec<u8>) {
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
        match &mut self.table {
            Some(rows) => out.extend_from_slice(rows.line(&view).as_bytes()),
            None => write_record(self.shape, &mut self.printer, &view, out),
        }
    }
}

impl Rows {
    fn new(wide: bool, topics: bool) -> Self {
        let topic = topics.then_some("TOPIC");
        let headings = topic.into_iter().chain(cell_headings(wide).iter().copied());
        Self {
            table: RowByRow::new(headings.collect()),
            wide,
            topics,
        }
    }

    fn line(&mut self, record: &RecordView<'_>) -> String {
        let topic = self.topics.then(|| record.topic.to_owned());
        let cells: Vec<String> = topic.into_iter().chain(cells(record, self.wide)).collect();
        self.table.row(&cells)
    }
}
