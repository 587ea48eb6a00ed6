//! `hulse consume`: by a reader ([`read`]), or with `-s` by a subscription ([`subscribed`]).

mod ahead;
mod beginning;
mod printing;
mod read;
mod run;
mod silence;
mod subscribed;

pub(crate) use run::run;
