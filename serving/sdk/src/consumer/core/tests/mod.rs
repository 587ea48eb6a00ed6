//! The core against a broker in the same loop: links break, acks and receipts get lost, cursors are moved, and at the end every
//! record was acknowledged for certain.

mod cases;
mod stored;
mod world;
