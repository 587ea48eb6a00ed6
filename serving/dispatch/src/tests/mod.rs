//! Tests of the dispatcher: rules by name, cases, properties, and seeded checkers with invariants after every step.

mod cases;
mod checker;
mod deadly;
mod flow;
mod invariants;
mod keyed;
mod model;
mod moving;
mod properties;
mod queue;
mod returns;
mod speed;
mod world;
