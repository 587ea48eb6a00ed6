//! A stopped node's directory, read from end to end without changing a byte.
//!
//! `disk` opens files for reading only, and holds the directory so that no node starts meanwhile; `survey` finds the files and what each
//! says of the others; `body` checks one file's groups, records and entries; `footer` checks what stands behind them.
//!
//! A hole at the very end of the log, behind which nothing valid stands, is how a killed node leaves it: no damage, and it is not told as
//! such. Everything before that was durable once.

mod body;
mod disk;
mod footer;
mod survey;

pub(super) use survey::{find, verify};
