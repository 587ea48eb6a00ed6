//! Committed offsets (serving.md B2.8 to B2.12): who may commit, where a group begins, what is kept, and for how long.

mod begin;
mod commit;
mod keep;
#[cfg(test)]
mod tests;
