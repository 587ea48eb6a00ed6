//! The printed result: what, how much, beside what.

use std::path::Path;

/// Rows in the order they were measured, and notes below them.
pub(crate) struct Table(Vec<[String; 5]>, Vec<String>);

impl Table {
    pub(crate) fn new() -> Self {
        let head = ["what", "measured", "reference", "ratio", "goal"];
        Self(vec![head.map(str::to_owned)], Vec::new())
    }

    /// Machine and file system, without which a figure says nothing.
    pub(crate) fn conditions(&mut self, folder: &Path) -> anyhow::Result<()> {
        let cores = std::thread::available_parallelism()?;
        let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
        let model = cpu
            .lines()
            .find_map(|line| line.strip_prefix("model name\t: "))
            .unwrap_or("unknown processor");
        let mounts = std::fs::read_to_string("/proc/mounts")?;
        let system = mounts
            .lines()
            .filter_map(|line| {
                let mut fields = line.split(' ');
                let (_, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
                folder
                    .starts_with(at)
                    .then_some((at.len(), kind.to_owned()))
            })
            .max()
            .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind);
        println!("{cores} processors, {model}; data on {system}");
        self.busy("before")
    }

    /// How busy the machine is with others' work; a figure of a busy machine is a lower bound.
    pub(crate) fn busy(&self, when: &str) -> anyhow::Result<()> {
        let load = std::fs::read_to_string("/proc/loadavg")?;
        let averages: Vec<&str> = load.split(' ').take(3).collect();
        println!("load average {when}: {}", averages.join(" "));
        Ok(())
    }

    /// A row that could not be measured here.
    pub(crate) fn not_run(&mut self, what: &str, why: &str) {
        println!("NOT RUN: {what}: {why}");
        self.0
            .push([what, "NOT RUN", why, "-", "-"].map(str::to_owned));
    }

    /// A sentence that belongs to the row before.
    pub(crate) fn note(&mut self, words: &str) {
        println!("  {words}");
        self.1.push(words.to_owned());
    }

    pub(crate) fn row(
        &mut self,
        what: &str,
        measured: &str,
        reference: &str,
        ratio: &str,
        goal: &str,
    ) {
        println!("{what}: {measured}; reference {reference}; ratio {ratio}; goal {goal}");
        self.0
            .push([what, measured, reference, ratio, goal].map(str::to_owned));
    }

    pub(crate) fn print(&self) {
        println!();
        let width = |column: usize| {
            self.0
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..5).map(width).collect();
        for row in &self.0 {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}", width = *width))
                .collect();
            println!("| {} |", cells.join(" | "));
        }
        for note in &self.1 {
            println!("{note}");
        }
    }
}

/// The middle value.
pub(crate) fn median<T: PartialOrd + Copy>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("measured values are comparable"));
    values[values.len() / 2]
}
