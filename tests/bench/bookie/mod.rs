//! The bookie's rows: a start on much data after a kill (`start`), the index of very many entries (`index`, over files that `footers`
//! writes), and what compaction does to produce (`compaction`, beside a bare disk: `bare`).

mod bare;
mod compaction;
mod footers;
mod index;
mod start;

pub(crate) use compaction::measure as compaction;
pub(crate) use index::{CHILD as INDEX_CHILD, child as index_child, measure as index};
pub(crate) use start::measure as start;
