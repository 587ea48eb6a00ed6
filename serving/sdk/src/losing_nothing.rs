//! How to lose nothing: the page of that name, whose code is compiled here and run by the integration tests.
//!
#![doc = include_str!("../losing-nothing.md")]
