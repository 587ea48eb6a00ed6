//! `hulse verify`: is everything there, and is it what it was.
//!
//! `topic` reads a topic through the server, as any reader would; `directory` reads a stopped node's log with the node's own library,
//! read-only. `view` is what both answer with.

mod directory;
mod run;
mod topic;
mod view;

pub(crate) use run::run;
pub(crate) use view::VerifyView;
