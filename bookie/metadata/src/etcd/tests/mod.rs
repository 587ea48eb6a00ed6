//! A real etcd, if there is one on the `PATH`; else the run says so.

mod fence;
mod frozen;
mod process;
mod suite;
mod words;
