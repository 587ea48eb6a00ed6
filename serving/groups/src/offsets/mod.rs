//! Committed offsets (serving.md B2.8 to B2.11): who may commit, what is kept, and for how long.

mod commit;
mod keep;
#[cfg(test)]
mod tests;
