//! Fetch: which partitions from where (`session`), what they hold (`gather`), waiting for room and for more (`room`, `run`), and the answer, whose records
//! are the stored bytes themselves (`encode`).

mod encode;
mod gather;
mod room;
mod run;
mod session;
mod spot;
mod turn;

pub(crate) use run::first_stage;
pub(crate) use session::Sessions;
pub(crate) use turn::Turn;
