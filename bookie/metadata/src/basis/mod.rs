//! What every store of this crate shares: checks, the effect of a transaction, history, leases, watches.
//!
//! No I/O. [`apply`] decides a transaction over any [`apply::Rows`]; [`history`] remembers what changed, so that pinned
//! listings and watches need nothing from the store itself; [`leases`] knows who is due; [`watch`] is the only async part.

pub(crate) mod apply;
pub(crate) mod check;
pub(crate) mod history;
pub(crate) mod leases;
pub(crate) mod page;
pub(crate) mod watch;
