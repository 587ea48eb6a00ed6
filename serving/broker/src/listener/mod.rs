//! The gRPC listener: decodes, authorises, calls, answers.
//!
//! One service per file: `lookup`, `produce` (sessions), `reading` (Log), `consuming` (sessions), `stream_groups` (members of groups), `subscriptions`, `identity`
//! (producer ids), `admin` (`retention`, `backlog`: its words for them; `effects`: what a change would let go; `damage`; `cluster`,
//! `bookies`, `brokers`: the cell and its nodes), `peers` (what the owner does that another broker was asked for; `loads`: how much it
//! has to do; `handing`, `arrivals`: partitions change hands; `draining`: all of a broker's, by order). They share `front`:
//! what is served, who may ask, and how an answer is counted. `wire` checks what came from outside, once; `opening` opens a
//! partition for a request; `ingress` bounds what is read. `accept` and `router` are the server that carries the services; `seam` is
//! what a listener of another wire stands on.
//!
//! # Invariants
//! 1. Every request passes `authorise` and is counted.
//! 2. Every error is a fault of the closed set (serving.md E4); nothing that a client sends makes a task panic.
//! 3. What one session or read has in memory is bounded, and so is the sum over all sessions.

mod accept;
mod admin;
mod arrivals;
mod backlog;
mod bookies;
mod brokers;
mod cluster;
mod consuming;
mod copies;
mod damage;
mod draining;
mod effects;
mod front;
mod handing;
mod identity;
mod ingress;
mod ledgers;
mod letters;
mod loads;
mod lookup;
mod opening;
mod peers;
mod produce;
mod reading;
mod retention;
mod router;
mod seam;
mod stream_groups;
mod subscriptions;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use accept::HttpDoor;
pub use accept::{Connection, Door, accept};
pub use front::Front;
pub(crate) use front::FrontParts;
pub use ingress::IngressPermit;
pub(crate) use router::{Services, set_serving};
pub use seam::WireListener;
