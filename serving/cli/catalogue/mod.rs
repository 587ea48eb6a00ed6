//! The catalogue of errors: every code that a command can end with, what it means, and what to do about it (operations.md B).
//!
//! A failure gets its number, its exit code, and the words that its maker left out from here, so that none can be told without why and
//! without what to do, wherever it is made. The page `errors.md` is made of this table; a test compares the two.
//!
//! `code` are those of the command line itself, `cause` joins them with the server's, whose numbers and meanings stand in
//! `hulse_proto::error`.

mod cause;
mod code;
#[cfg(test)]
mod tests;

pub(crate) use cause::Cause;
pub(crate) use code::{Code, Exit};
