//! The client: addresses, connections, clock and randomness that its producers, readers and admins share.

mod builder;
mod call;
mod handle;
mod topic;

pub use builder::ClientBuilder;
pub(crate) use call::Repeat;
pub use handle::Client;
pub(crate) use handle::Core;
pub(crate) use topic::{Redirect, Topic};
