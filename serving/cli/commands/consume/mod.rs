//! `hulse consume`: by a reader ([`read`]), or with `-s` by a subscription, for itself ([`subscribed`]) a share of it ([`shared`]), or as
//! a member of a group ([`streamed`]).

mod ahead;
mod beginning;
mod printing;
mod read;
mod run;
mod shared;
mod silence;
mod streamed;
mod subscribed;

pub(crate) use run::run;
