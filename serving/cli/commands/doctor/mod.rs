//! `hulse doctor`: looks at a running server from outside and says what is wrong, why, and what to run next.
//!
//! `finding` is what it says; `http` and `metrics` read what the server tells machines; `numbers` judges those, `server` and `damage` ask the rest, and `backlogs` judges what subscriptions say,
//! over the wire of clients; `nodes` looks at the other nodes of a cluster; `looked` counts what was looked at; `run` is the order.

mod backlogs;
mod damage;
mod finding;
mod http;
mod looked;
mod metrics;
mod nodes;
mod numbers;
mod run;
mod server;

pub(crate) use finding::{Ailment, Finding, Weight};
pub(crate) use http::get as http_get;
pub(crate) use run::run;
