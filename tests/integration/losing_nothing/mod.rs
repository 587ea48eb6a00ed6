//! The page "Losing nothing" of the SDK: everything that it says to run is run.
//!
//! Its Rust stands here once more, a file for each block in the order of the page, and [`page`] holds the two to each other word for
//! word; its shell and its Python are run from the page itself.

mod consume;
mod page;
mod produce;
mod prove;
mod running;
mod seek;
mod unknown;
