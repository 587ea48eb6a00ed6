//! `hulse generate`: `orders` makes the records, `run` sends them.

mod orders;
mod run;

pub(crate) use run::{DemoView, run};
