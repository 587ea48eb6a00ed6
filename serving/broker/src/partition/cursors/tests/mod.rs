//! The state machine of the cursors.

mod cases;
mod late;
mod random;
mod world;
