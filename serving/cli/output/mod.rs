//! What a command prints. Data go to standard output in the form of `--output`, words to standard error.
//!
//! [`View`] is how a typed answer declares its fields and columns; [`Output`] writes any of them in any [`Shape`]: the one renderer.
//! [`Progress`] is for long work and shows on a terminal only.

mod progress;
mod shape;
mod table;
mod view;
mod writer;
mod yaml;

pub(crate) use hulse_proto::size::about as bytes;
pub(crate) use progress::Progress;
pub(crate) use shape::Shape;
pub(crate) use table::{RowByRow, Table, grouped};
pub(crate) use view::{Field, View};
pub(crate) use writer::{Output, wants_colour};
pub(crate) use yaml::yaml;
