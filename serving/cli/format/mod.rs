//! The format language of `-f`: how `consume` prints a record and how `produce` reads one.
//!
//! [`compile`] turns text into tokens, [`Printer`] walks them over a record, [`Scanner`] walks them over input. What is understood is
//! operations.md B's superset of kcat's and rpk's letters; what cannot be meant is refused with its place, never ignored.

mod compile;
mod date;
mod print;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use compile::FormatError;
pub(crate) use date::{date, parse_rfc3339};
pub(crate) use print::{HeaderView, Printer, RecordView, json_record};
pub(crate) use scan::{Scanned, Scanner, find, split_header};

/// The language in one screen, for the help pages.
pub(crate) const HELP: &str = "\
Format: text with these letters
  %t topic      %p partition    %o offset      %T timestamp in ms   %i number of the record, from 1
  %k key        %v or %s value  %h headers     %P{name} one header
  %K key bytes  %S value bytes  (-1: null)     %% a percent sign
After a letter: {hex} {base64} {json} {len}; %T{strftime[%Y-%m-%dT%H:%M:%S]}; numbers {hex} {big32} {big64}
Escapes: \\n \\t \\r \\0 \\\\ \\xNN";
