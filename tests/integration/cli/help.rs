//! Pages of help, read as a person reads them.

use std::process::Command;

use super::super::server::HULSE;
use super::text;

/// One page.
pub(super) struct Page {
    /// The words after `hulse`; empty for the first page.
    pub(super) path: Vec<String>,
    /// Its examples, a line each.
    pub(super) examples: Vec<String>,
    /// Whether there are commands below.
    pub(super) branch: bool,
}

/// Every page, from the first one down.
pub(super) fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    let mut paths = vec![Vec::new()];
    while let Some(path) = paths.pop() {
        let output = Command::new(HULSE)
            .args(&path)
            .arg("--help")
            .output()
            .expect("the binary can be started");
        assert!(output.status.success(), "{path:?} --help");
        let page = text(&output.stdout);
        let below = commands(&page);
        paths.extend(
            below
                .iter()
                .map(|name| [&path[..], std::slice::from_ref(name)].concat()),
        );
        pages.push(Page {
            examples: examples(&page),
            branch: !below.is_empty(),
            path,
        });
    }
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    pages
}

/// Names under "Commands:", without `help`.
fn commands(page: &str) -> Vec<String> {
    let lines = page.lines().skip_while(|line| *line != "Commands:").skip(1);
    lines
        .take_while(|line| !line.is_empty())
        // A description that goes on in the next line stands further right.
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Lines under "Examples:", without the words that stand behind three spaces.
fn examples(page: &str) -> Vec<String> {
    let lines = page.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines
        .take_while(|line| line.starts_with("  "))
        .map(|line| line.trim())
        .map(|line| line.split("   ").next().unwrap_or(line).to_owned())
        .collect()
}
