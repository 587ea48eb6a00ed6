//! Client commands and `config`. Each returns a typed value and lets [`crate::output`] render it; the server is reached through the SDK
//! only.

pub(crate) mod config;
