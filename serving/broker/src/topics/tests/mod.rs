//! The registry over a memory store: races, unknown outcomes, and a deletion that is cut short at each of its steps.

mod deleting;
mod fakes;
mod registering;
