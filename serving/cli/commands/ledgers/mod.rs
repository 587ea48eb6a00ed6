//! `hulse ledgers`: `run` the branch and what it shows, `stake` what would be given up.

mod run;
mod stake;

pub(crate) use run::{LedgerView, run};
