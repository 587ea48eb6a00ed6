//! The staging store: by its rules, in simulated time with everything that goes wrong, and its forms on disk.

mod codec;
mod rules;
mod simulated;
mod world;
