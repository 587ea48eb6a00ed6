//! `hulse completions`: the script of a shell ([`scripts`]), made of clap's, and what it asks while a person types: which kind of name a
//! line wants at its end ([`line`]), and which names of that kind there are ([`names`]).

mod line;
mod names;
mod scripts;

pub(crate) use scripts::run;
