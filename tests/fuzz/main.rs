//! Fuzz: each decoder of bytes from a wire or a disk, under a seeded mutator over a kept corpus, as plain tests.
//!
//! A decoder may refuse; it may not panic, break what it promises of what it accepts (`decoders`), or allocate more than
//! `allocation::BYTES_MAX` and four times its input. An input that makes it do so is written to `corpus/<decoder>/` and stays there.
//!
//! `HULSE_FUZZ_ITERATIONS` sets the mutated inputs per decoder (`HULSE_LONG=1`: twenty times the usual);
//! `HULSE_FUZZ_WRITE_SEEDS=1` writes the seeds of `seeds` into the corpus, which is needed when a format changes.
//!
//! Reading order: `runner`, `decoders`, `log`, `segment`, `groups`, `transactions`, `functions`, `seeds`, `mutator`, `corpus`, `allocation`.

mod allocation;
mod calls;
mod corpus;
mod decoders;
mod functions;
mod groups;
mod kafka;
mod log;
mod mutator;
mod runner;
mod seeds;
mod segment;
mod transactions;
