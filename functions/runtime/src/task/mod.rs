//! A task: the state machine around epochs. What it wants done is an [`Effect`], one at a time; what came of it is an [`Event`].
//!
//! Path: fence → offsets of the group → changelog → snapshot → (fetch → compute → begin → produce → changelog → offsets → commit)*.
//! Any trouble on the way leads back to the fence (compute.md B4.10, B5); a [`crate::TaskFailure`] ends the task.

mod effect;
mod machine;
mod snapshots;

pub use effect::{Effect, Event, Page, Producer, Trouble};
pub use machine::Task;
pub use snapshots::{Cleaning, Upload, is_orphan};
