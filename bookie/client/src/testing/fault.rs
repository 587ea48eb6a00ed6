//! What goes wrong with the calls of a memory bookie.

use std::time::Duration;

use hulse_proto::bookie::BookieError;

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The request does not arrive; the caller hears `NoAnswer`.
    RequestLost,
    /// The request is carried out; the caller hears `NoAnswer`.
    AnswerLost,
    /// The request does not arrive and nothing is ever answered.
    RequestSilent,
    /// The request is carried out and nothing is ever answered.
    AnswerSilent,
    /// Not carried out, answered with this.
    Refuse(BookieError),
    /// Carried out in its turn; the answer takes this long.
    Slow(Duration),
    /// Carried out only after this long; others may overtake it.
    Late(Duration),
}
