//! `hulse topics`: one file per command that is more than a call; `view` is what they answer with (`copied`, `damaged`: parts of it), `run` the branch.

mod copied;
mod copy;
mod damaged;
mod describe;
mod losing;
mod name;
mod peek;
mod run;
mod trim;
mod view;

pub(crate) use copy::CopyView;
pub(crate) use name::NameView;
pub(crate) use peek::PeekView;
pub(crate) use run::run;
pub(crate) use trim::TrimView;
pub(crate) use view::{TopicRow, TopicView};
