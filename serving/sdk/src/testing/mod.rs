//! Fakes for this crate's tests.
