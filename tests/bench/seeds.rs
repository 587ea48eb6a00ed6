//! How fast the simulations go: seeds per minute and core, in the profile in which `cargo test` runs them.

use std::process::{Command, Stdio};

use super::table::Table;

/// What a suite is started by, and how the rows name it.
struct Suite {
    what: &'static str,
    arguments: &'static [&'static str],
}

const SUITES: [Suite; 3] = [
    Suite {
        what: "simulation, ledger protocol over real nodes",
        arguments: &["--test", "simulation", "no_confirmed_entry_is_lost"],
    },
    Suite {
        what: "simulation, two brokers over real nodes",
        arguments: &[
            "--test",
            "simulation",
            "no_acknowledged_record_is_lost_or_doubled",
        ],
    },
    Suite {
        what: "simulation, writer and recovery cores",
        arguments: &[
            "-p",
            "bookie-client",
            "--lib",
            "tests::simulation::runs::no_confirmed_entry_is_lost_with_three_bookies",
        ],
    },
];

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    for suite in &SUITES {
        match speed(suite)? {
            Some((seeds, rate)) => table.row(
                suite.what,
                &format!("{rate:.0} seeds per minute and core"),
                &format!("{seeds} seeds, profile of `cargo test`"),
                "-",
                "at least 1,000",
            ),
            None => table.not_run(suite.what, "the suite failed or told no number of seeds"),
        }
    }
    Ok(())
}

/// Seeds run, and how many in a minute of one core.
fn speed(suite: &Suite) -> anyhow::Result<Option<(u64, f64)>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let (target, name) = suite.arguments.split_at(suite.arguments.len() - 1);
    let command = |last: &[&str]| {
        let mut command = Command::new(&cargo);
        command
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["test", "--quiet", "--locked"])
            .args(target)
            .args(last)
            .env_remove("HULSE_LONG")
            .env_remove("HULSE_SEED")
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    // Building is not what is measured.
    if !command(&["--no-run"]).status()?.success() {
        return Ok(None);
    }
    let before = children_seconds()?;
    let output = command(&["--", name[0], "--exact", "--nocapture"]).output()?;
    let minutes = (children_seconds()? - before) / 60.0;
    let text = String::from_utf8_lossy(&output.stdout);
    let seeds: u64 = text.lines().filter_map(seeds_of).sum();
    Ok((output.status.success() && seeds > 0).then(|| (seeds, seeds as f64 / minutes)))
}

/// "seeds SUITE: N" or "N seeds of ..", as the suites tell it.
fn seeds_of(line: &str) -> Option<u64> {
    if let Some((head, count)) = line.rsplit_once(": ")
        && head.starts_with("seeds ")
        && !head.starts_with("seeds run")
    {
        return count.trim().parse().ok();
    }
    line.split_once(" seeds of ")?.0.parse().ok()
}

/// Processor seconds of all children that have ended.
fn children_seconds() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[13].parse::<f64>()? + fields[14].parse::<f64>()?;
    Ok(ticks / 100.0)
}
