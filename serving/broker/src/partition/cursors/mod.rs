//! The subscriptions of one open partition: who consumes, from where, and what of it is acknowledged (serving.md B1, B2, B5).
//!
//! `core` is a state machine without I/O, beside that of the log: consumers attach, acks come, cursors move, and it says what
//! delta is to be written and what each consumer's lane is to do. The task of the partition writes the deltas (`task_side`), lanes
//! follow their [`LaneView`] and read the log by themselves.
//!
//! # Invariants
//! 1. Acks are judged at once, on `accepted`, and answered when the delta that has them is confirmed: then they are in the state
//!    of the partition, too, and whoever takes it over knows of them.
//! 2. One delta is in flight at a time; what comes meanwhile is one delta. What failed is written again, merged with what came since.
//! 3. Deliveries to an active consumer begin at the accepted base, and a consumer can ack only what it was sent before the ack came, in its
//!    present turn and state epoch, in the turn before when nobody else was active in between, or in an attachment that broke ([`Handed`]).
//! 4. At most one consumer of a cursor is active. Another one becomes so only when the former one is gone, has yielded, or had its
//!    grace.
//!
//! Reading order: `lane` (what a consumer sees), `seat` (the consumers of one cursor), `pending` (what is not durable yet), `core`,
//! `acks`, `written`, `kept` (cursors and trims), `shared` (cursors of dispatchers), `rates` (how fast it goes).

mod acks;
mod core;
mod kept;
mod lane;
mod pending;
mod rates;
mod refusing;
mod seat;
mod shared;
mod task_side;
#[cfg(test)]
mod tests;
mod view;
mod written;

pub(crate) use self::core::CursorCore;
pub use self::core::{Handed, NewConsumer};
pub(crate) use lane::{AckCommand, CursorAnswer, MoveCommand};
pub use lane::{
    AckKind, AckStatus, Acked, Begin, Cause, ConsumerId, CursorMove, LaneView, Moved, Stand,
};
pub use rates::Rates;
pub(crate) use refusing::refuse_late;
pub(crate) use task_side::{CursorCommand, CursorTask, CursorTicket, LaneDoor, Sent};
pub use view::{ConsumerView, CursorView};
