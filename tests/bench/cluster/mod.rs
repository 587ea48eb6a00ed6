//! A cluster of real processes on one machine: what a kill, a hand-over, a new node and copies cost.
//!
//! etcd, bookies and brokers are processes of this profile's binary, each with a folder and ports (19100 to 19199) of its own. They share
//! processors and disk with each other, with the client and with the control of the disk: times are upper bounds, rates lower ones.
//!
//! Reading order: `cell` and `process` (what is started), `pulse` (a steady load, and when each record was answered), `control` (the bare
//! disk meanwhile); then a file for each kind of figure.

mod cell;
mod control;
mod copies;
mod joins;
mod kills;
mod many;
mod metadata;
mod moves;
mod process;
mod pulse;
mod quorums;

use std::path::Path;

use tokio::runtime::Runtime;

use super::etcd::Etcd;
use super::table::Table;

type Part = fn(&Path, &mut Table, &Runtime) -> anyhow::Result<()>;

/// By the names that `cargo bench -- NAME` takes.
const PARTS: [(&str, Part); 7] = [
    ("cluster-kills", kills::measure),
    ("cluster-moves", moves::measure),
    ("cluster-many", many::measure),
    ("cluster-joins", joins::measure),
    ("cluster-quorums", quorums::measure),
    ("cluster-copies", copies::measure),
    ("cluster-metadata", metadata::measure),
];

/// Those that are wanted, one after the other.
pub(crate) fn measure(
    wants: impl Fn(&str) -> bool,
    folder: &Path,
    table: &mut Table,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    for (name, part) in PARTS.into_iter().filter(|(name, _)| wants(name)) {
        match Etcd::version() {
            Some(_) => part(folder, table, runtime)?,
            None => table.not_run(name, "etcd is not installed (Debian: etcd-server)"),
        }
    }
    Ok(())
}
