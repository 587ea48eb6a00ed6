//! Every reason for which the system refuses or fails, in one closed table (style.md 4.6, serving.md E4).
//!
//! A [`Reason`] is what the wire carries; from it follow the [`ErrorKind`] (what the caller does), the gRPC code, the fate and the
//! HULSE number. Nothing else in the tree maps errors to codes.

mod fault;
mod reason;

pub use fault::{Fate, Fault};
pub use reason::{ErrorKind, Reason};
