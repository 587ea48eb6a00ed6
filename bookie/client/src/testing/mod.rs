//! Memory bookies and a static directory, for tests of this crate and of those above it.

mod directory;

pub use directory::StaticDirectory;
