//! `hulse bench`: measures a running server through the SDK, as a user's program would.
//!
//! [`produce`] and [`consume`] measure how much goes; [`latency`] sends at a rate and counts each answer from the time its record was
//! due, so that a stall is not hidden by the records that it kept from being sent. [`codecs`] compares codecs on
//! the user's own records. [`figures`] is what they print.

mod codecs;
mod consume;
mod figures;
mod latency;
mod payload;
mod produce;
mod run;

pub(crate) use codecs::CodecsView;
pub(crate) use figures::Figures;
pub(crate) use run::run;
