//! The format language of `-f`: how `consume` prints a record and how `produce` reads one.
//!
//! [`compile`] turns text into tokens, [`Printer`] walks them over a record, [`Scanner`] walks them over input. What is understood is
//! operations.md B's superset of kcat's and rpk's letters; what cannot be meant is refused with its place, never ignored.

mod cells;
mod compile;
mod date;
mod help;
mod print;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use cells::{cell_headings, cells};
pub(crate) use compile::FormatError;
pub(crate) use date::{date, date_and_time, parse_rfc3339};
pub(crate) use help::{INPUT_HELP, OUTPUT_HELP};
pub(crate) use print::{HeaderView, Printer, RECORD_FIELDS, RecordView, json_record, write_record};
pub(crate) use scan::{Scanned, Scanner, find, split_header};
