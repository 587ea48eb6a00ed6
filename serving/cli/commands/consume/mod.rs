//! `hulse consume`: by a reader ([`read`]), or with `-s` by a subscription ([`subscribed`]).

mod printing;
mod read;
mod run;
mod subscribed;

pub(crate) use run::run;
