//! `hulse topics`: one file per command that is more than a call; `view` is what they answer with, `run` the branch.

mod copy;
mod damaged;
mod describe;
mod losing;
mod peek;
mod run;
mod trim;
mod view;

pub(crate) use copy::CopyView;
pub(crate) use peek::PeekView;
pub(crate) use run::run;
pub(crate) use trim::TrimView;
pub(crate) use view::{NameView, TopicRow, TopicView};
