//! `hulse consume`: by a reader ([`read`]), or with `-s` by a subscription, for itself ([`subscribed`]) or a share of it ([`shared`]).

mod ahead;
mod beginning;
mod printing;
mod read;
mod run;
mod shared;
mod silence;
mod subscribed;

pub(crate) use run::run;
