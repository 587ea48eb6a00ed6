//! Speed and memory of one machine, each figure beside a reference that is measured in the same run, interleaved with it.
//!
//! `cargo bench` builds with the release profile and starts the real binary. Writes at most 64 GiB in all. Prints a table and never
//! fails on a figure: what is slow is profiled, not gated. What cannot be measured here is a row that says NOT RUN.
//!
//! `cargo bench -- NAME..` measures only the parts whose names contain one of the words: idle, latency, produce, catch-up, tail,
//! ensemble, bookie-start, bookie-index, bookie-compaction, partitions, compressed, overload, backlog (needs 25 GiB of disk), batch-path
//! (needs valgrind), seeds (runs the simulations), cluster-kills, cluster-moves, cluster-many, cluster-joins, cluster-quorums,
//! cluster-copies, cluster-metadata (these need etcd), queue-acks, queue-keyed, queue-paced, queue-handlers, queue-ranges. `etcd`
//! (`tests/bench/etcd/run`), `million` and `queue-many` run only when they are named.
//!
//! HULSE_BENCH_DIR names the directory that is measured (default: a temporary one beside the target folder).

mod audit;
mod backlog;
mod batch_path;
mod bookie;
mod cluster;
mod compressed;
mod disk;
mod ensemble;
mod etcd;
mod idle;
mod latency;
mod load;
mod overload;
mod partitions;
mod queue;
mod seeds;
mod server;
mod sink;
mod slow_disk;
mod spread;
mod table;
mod tail;

use std::path::{Path, PathBuf};

use tokio::runtime::Runtime;

use table::Table;

/// Parts that take too long to run unasked.
const LONG: [&str; 3] = ["etcd", "million", "queue-many"];

/// What was asked for on the command line; nothing: all but [`LONG`].
struct Asked(Vec<String>);

impl Asked {
    fn wants(&self, name: &str) -> bool {
        match self.0.is_empty() {
            true => !LONG.contains(&name),
            false => self.0.iter().any(|part| name.contains(part.as_str())),
        }
    }
}

fn main() -> anyhow::Result<()> {
    let words = std::env::args().skip(1);
    let words: Vec<String> = words.filter(|word| !word.starts_with("--")).collect();
    match &words[..] {
        [first, rest @ ..] if first == audit::CHILD => return audit::child(rest),
        [first, rest @ ..] if first == batch_path::CHILD => return batch_path::child(rest),
        [first, rest @ ..] if first == bookie::INDEX_CHILD => return bookie::index_child(rest),
        [first, rest @ ..] if first == partitions::CHILD => return partitions::child(rest),
        _ => {}
    }
    let base = std::env::var_os("HULSE_BENCH_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target"),
        PathBuf::from,
    );
    let folder = tempfile::Builder::new()
        .prefix("hulse-bench-")
        .tempdir_in(base)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let mut table = Table::new();
    table.conditions(folder.path())?;
    measure(&Asked(words), folder.path(), &mut table, &runtime)?;
    table.busy("after")?;
    table.print();
    Ok(())
}

fn measure(
    asked: &Asked,
    folder: &Path,
    table: &mut Table,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    if asked.wants("idle") {
        idle::measure(folder, table, runtime)?;
    }
    if asked.wants("latency") {
        latency::measure(folder, table, runtime)?;
    }
    if asked.wants("produce") {
        load::produce_synced(folder, table, runtime)?;
        load::produce_unsynced(folder, table, runtime)?;
    }
    if asked.wants("catch-up") {
        load::catch_up(folder, table, runtime)?;
    }
    if asked.wants("tail") {
        tail::send_to_consumer(folder, table, runtime)?;
        tail::at_full_rate(folder, table, runtime)?;
    }
    if asked.wants("ensemble") {
        ensemble::measure(folder, table, runtime)?;
    }
    if asked.wants("bookie-start") {
        bookie::start(folder, table, runtime)?;
    }
    if asked.wants("bookie-index") {
        bookie::index(folder, table, runtime)?;
    }
    if asked.wants("bookie-compaction") {
        bookie::compaction(folder, table, runtime)?;
    }
    if asked.wants("partitions") {
        partitions::measure(folder, table)?;
        spread::measure(folder, table, runtime)?;
    }
    if asked.wants("compressed") {
        compressed::measure(folder, table, runtime)?;
    }
    if asked.wants("overload") {
        overload::measure(folder, table, runtime)?;
    }
    if asked.wants("backlog") {
        backlog::measure(folder, table, runtime)?;
    }
    if asked.wants("batch-path") {
        batch_path::measure(folder, table)?;
    }
    if asked.wants("seeds") {
        seeds::measure(table)?;
    }
    if asked.wants("etcd") {
        etcd::measure(folder, table, runtime)?;
    }
    if asked.wants("million") {
        etcd::million(folder, table, runtime)?;
    }
    queue::measure(|name| asked.wants(name), folder, table, runtime)?;
    cluster::measure(|name| asked.wants(name), folder, table, runtime)
}
