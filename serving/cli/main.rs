//! `hulse`: the one binary.
fn main() {}
