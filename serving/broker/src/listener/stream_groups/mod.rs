//! Service StreamGroups: members of groups over gRPC (serving.md B8). They are members of the machine of `serving-groups` like Kafka's,
//! and in the same groups; what differs is that their listener stays beside the coordinator and beats for them when something changed,
//! so that an assignment is pushed at once.
//!
//! A session is one member. It asks the coordinator of this broker; when that ends here, so does the session, with the way to the next
//! one. Before an assignment is told, each partition of it has an offset in the group (`placing`).
//!
//! Reading order: `service`, `joining` (the first item), `session`, `placing`, `words` (from the wire and to it).

mod joining;
mod placing;
mod service;
mod session;
mod words;

pub(super) use service::StreamGroupsService;
pub(super) use words::fault_of;
