//! Speed and memory of one machine, each figure beside a reference that is measured in the same run, interleaved with it.
//!
//! `cargo bench` builds with the release profile and starts the real binary. Writes at most 4 GiB in all. Prints a table and never
//! fails on a figure: what is slow is profiled, not gated.
//!
//! HULSE_BENCH_DIR names the directory that is measured (default: a temporary one beside the target folder).

mod disk;
mod idle;
mod latency;
mod load;
mod server;
mod table;

use std::path::PathBuf;

fn main() -> anyhow::Result<()> {
    let base = std::env::var_os("HULSE_BENCH_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target"),
        PathBuf::from,
    );
    let folder = tempfile::Builder::new()
        .prefix("hulse-bench-")
        .tempdir_in(base)?;
    let wanted = |name: &str| {
        let asked: Vec<String> = std::env::args()
            .skip(1)
            .filter(|argument| !argument.starts_with("--"))
            .collect();
        asked.is_empty() || asked.iter().any(|part| name.contains(part.as_str()))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let mut table = table::Table::new();
    table.conditions(folder.path())?;
    if wanted("idle") {
        idle::measure(folder.path(), &mut table, &runtime)?;
    }
    if wanted("latency") {
        latency::measure(folder.path(), &mut table, &runtime)?;
    }
    if wanted("produce") {
        load::produce_synced(folder.path(), &mut table, &runtime)?;
        load::produce_unsynced(folder.path(), &mut table, &runtime)?;
    }
    if wanted("catch-up") {
        load::catch_up(folder.path(), &mut table, &runtime)?;
    }
    table.print();
    Ok(())
}
