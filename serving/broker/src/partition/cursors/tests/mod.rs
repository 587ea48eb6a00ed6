//! The state machine of the cursors.

mod cases;
mod random;
mod world;
