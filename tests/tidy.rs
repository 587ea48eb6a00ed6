//! House rules that a machine holds (style.md 4.10), as tests over the files of the tree and the crates of the lock file.
//!
//! [`source`] blanks comments and strings, so that a rule sees code only; [`rules`] are the rules of one file, each with a sample that
//! breaks it; [`crates`] are arrows, third parties and licences; [`pages`] looks after what is named on a page; here is what concerns
//! the tree as a whole.
//!
//! A finding reads `path:line: what; what to do`. All findings of a rule are told at once.

#[path = "tidy/crates.rs"]
mod crates;
#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use source::{Source, tree};

/// The root of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Fails with all findings.
fn none(findings: Vec<String>) {
    assert!(findings.is_empty(), "{}\n", findings.join("\n"));
}

#[test]
fn every_rust_file_keeps_the_rules() {
    let mut findings = Vec::new();
    for path in tree(root())
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
    {
        let source = Source::read(root(), &path);
        findings.extend(rules::RULES.iter().flat_map(|rule| (rule.check)(&source)));
    }
    none(findings);
}

#[test]
fn no_file_names_a_machine_or_leaves_work_undone() {
    // Put together here, so that this file does not hold what it looks for.
    let marks =
        ["TO", "FIX", "XX"].map(|head| format!("{head}{}", if head == "TO" { "DO" } else { "ME" }));
    let machine = ["/root", "/home", "/work", "/Users"].map(|folder| format!("{folder}/"));
    let mut findings = Vec::new();
    for path in tree(root()) {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else {
            continue; // Not text: a corpus or a picture.
        };
        for (number, line) in text.lines().enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            if let Some(mark) = marks.iter().find(|mark| line.contains(mark.as_str())) {
                findings.push(format!("{place}: {mark}; do it, or file an issue"));
            }
            if let Some(folder) = machine.iter().find(|folder| names_machine(line, folder)) {
                findings.push(format!("{place}: names a folder of one machine, {folder}"));
            }
        }
    }
    none(findings);
}

/// True when the folder begins a path in this line, rather than standing inside one.
fn names_machine(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before
            .is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '}' | '*'))
    })
}

#[test]
fn paths_named_in_the_readme_exist() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md is readable");
    let named = paths_in(&readme);
    assert!(named.len() > 10, "README.md names {} paths", named.len());
    let missing = named
        .into_iter()
        .filter(|(_, path)| !root().join(path).exists());
    none(
        missing
            .map(|(line, path)| format!("README.md:{line}: {path} does not exist"))
            .collect(),
    );
}

#[test]
fn names_on_the_page_of_the_rules_exist() {
    const PAGE: &str = "bookie/README.md";
    let mut product = BTreeSet::new();
    for path in tree(root()) {
        let rust = path.extension().is_some_and(|e| e == "rs");
        if rust
            && ["bookie", "serving", "proto"]
                .iter()
                .any(|area| path.starts_with(area))
        {
            let source = Source::read(root(), &path);
            product.extend(pages::words(&source.code).map(str::to_owned));
        }
    }
    let text = std::fs::read_to_string(root().join(PAGE)).expect("the page is readable");
    let mut findings = pages::missing(root(), PAGE, &text, &product);
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md is readable");
    let followed = pages::sections(&readme, "## Follow ");
    let named = followed.matches(".rs` `").count();
    assert!(named >= 15, "README.md follows {named} functions");
    findings.extend(pages::missing(root(), "README.md", &followed, &product));
    none(findings);
}

/// Paths in backquotes and in links, with their lines. A path begins with a folder of the top level.
fn paths_in(text: &str) -> Vec<(usize, String)> {
    const TOP: [&str; 8] = [
        "serving/",
        "bookie/",
        "functions/",
        "proto/",
        "charts/",
        "tests/",
        ".ci/",
        "Cargo",
    ];
    let mut paths = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let quoted = line.split('`').skip(1).step_by(2);
        let linked = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for path in quoted.chain(linked) {
            let path = path.split_whitespace().next().unwrap_or("");
            if TOP.iter().any(|top| path.starts_with(top)) {
                paths.push((number + 1, path.to_owned()));
            }
        }
    }
    paths
}

#[test]
fn top_level_holds_only_what_was_decided() {
    const ALLOWED: [&str; 11] = [
        "Cargo.toml",
        "Cargo.lock",
        "LICENSE",
        "CHANGELOG.md",
        "README.md",
        "serving",
        "bookie",
        "functions",
        "proto",
        "charts",
        "tests",
    ];
    let entries = std::fs::read_dir(root()).expect("the root is readable");
    let names = entries.map(|entry| entry.expect("an entry is readable").file_name());
    let strange = names
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .filter(|name| !["target", "hulse-data", "hulse-cluster"].contains(&name.as_str()))
        .filter(|name| !ALLOWED.contains(&name.as_str()));
    none(
        strange
            .map(|name| format!("{name}: not one of {ALLOWED:?}"))
            .collect(),
    );
}

#[test]
fn lock_file_is_committed() {
    assert!(root().join("Cargo.lock").exists(), "Cargo.lock is missing");
    let ignored = std::fs::read_to_string(root().join(".gitignore")).unwrap_or_default();
    assert!(
        !ignored.contains("Cargo.lock"),
        ".gitignore names Cargo.lock"
    );
    if !root().join(".git").exists() {
        return; // A tarball: what is there was packed from the repository.
    }
    let git = std::process::Command::new("git")
        .args(["ls-files", "--error-unmatch", "Cargo.lock"])
        .current_dir(root())
        .output();
    let listed = git.expect("git runs where .git exists");
    assert!(listed.status.success(), "Cargo.lock is not committed");
}

#[test]
fn paths_of_a_text_are_found_in_quotes_and_links() {
    let text = "run `tests/run --long`\nsee [a](proto/src/lib.rs) and `cargo run` or `http://x/`";
    let expected = [
        (1, "tests/run".to_owned()),
        (2, "proto/src/lib.rs".to_owned()),
    ];
    let mut found = paths_in(text);
    found.sort();
    assert_eq!(found, expected);
    let folder = format!("/{}/", "root");
    assert!(names_machine(&format!("cd {folder}x"), &folder));
    assert!(!names_machine(&format!("serving{folder}x"), &folder));
}

/// The rules of a path that exists only in a sample.
fn sample(path: &str, text: &str) -> Source {
    Source::new(PathBuf::from(path), text.to_owned())
}

#[test]
fn each_rule_finds_its_sin_and_nothing_in_good_code() {
    let good = "//! Header.\n\nfn f() {\n    // select! and SystemTime::now are words here.\n    g(\"Instant::now\");\n}\n";
    for rule in rules::RULES {
        for (path, text) in rule.sins {
            let found = (rule.check)(&sample(path, text));
            assert!(!found.is_empty(), "{} finds nothing in {text:?}", rule.name);
        }
        assert!(!rule.sins.is_empty(), "{} has no sample", rule.name);
        let found = (rule.check)(&sample("bookie/node/src/x.rs", good));
        assert!(found.is_empty(), "{}: {found:?}", rule.name);
    }
}
