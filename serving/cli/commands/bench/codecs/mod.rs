//! `hulse bench produce --compression all FILE`: which codec is worth it for these records and this server.
//!
//! `sample` reads the user's records; `pack` measures ratio and the client's time without a server; `send` measures what really goes, all
//! codecs in turn and several rounds, so that what else the machine does hits all alike; `verdict` says which resource limits and what to
//! take, or that nothing can be said; `view` is the answer.

mod pack;
mod run;
mod sample;
mod send;
mod verdict;
mod view;

pub(crate) use run::run;
pub(crate) use view::CodecsView;
