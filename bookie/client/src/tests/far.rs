//! The tests of the face and of changes once more, with both ends of the transport between client and bookies.

#[expect(clippy::duplicate_mod, reason = "one suite, two kinds of bookies")]
#[path = "changes.rs"]
mod changes;
#[expect(clippy::duplicate_mod, reason = "one suite, two kinds of bookies")]
#[path = "face.rs"]
mod face;

pub(crate) type Cluster = super::cluster::Cluster<true>;
pub(crate) use super::cluster::{data, new_log};
