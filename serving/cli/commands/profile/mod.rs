//! Profiles: servers by name, kept in one file of the user (operations.md A2).
//!
//! A value comes from a flag, else from the environment, else from the profile in force, else it is the default. `store` is the file,
//! `run` the commands.

mod run;
mod store;

pub(crate) use run::{ProfileView, PromptView, run};
pub(crate) use store::{Chosen, in_force, names};
