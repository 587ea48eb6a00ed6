//! Rules of crates: which may name which (style.md 4.2), where their features stand, and under what licences they come.

use std::io::Write as _;
use std::process::Command;

use serde_json::Value;

use crate::{none, root};

/// A crate of ours and those of ours that it may name. The root package may name all.
const ARROWS: &[(&str, &[&str])] = &[
    ("hulse-proto", &[]),
    ("bookie-metadata", &["hulse-proto"]),
    ("bookie-transport", &["hulse-proto"]),
    // The transport for tests only: who carries calls is the caller's choice.
    (
        "bookie-client",
        &[
            "hulse-proto",
            "bookie-metadata",
            "bookie-transport",
            "bookie-tier",
        ],
    ),
    ("bookie-node", &["hulse-proto", "bookie-metadata"]),
    ("bookie-tier", &["hulse-proto"]),
    (
        "bookie-upkeep",
        &[
            "hulse-proto",
            "bookie-metadata",
            "bookie-tier",
            "bookie-client",
        ],
    ),
    ("hulse-sdk", &["hulse-proto"]),
    // Who consumes what: a state machine below every listener.
    ("serving-dispatch", &["hulse-proto"]),
    // Acks that a transaction stages are ranges of the dispatcher's cursors.
    ("serving-transactions", &["hulse-proto", "serving-dispatch"]),
    (
        "serving-broker",
        &[
            "hulse-proto",
            "bookie-client",
            "bookie-metadata",
            "serving-dispatch",
            "serving-groups",
        ],
    ),
    ("serving-groups", &["hulse-proto"]),
    (
        "serving-kafka",
        &["hulse-proto", "serving-broker", "serving-groups"],
    ),
    // For tests of users and ours: a server in memory, and the client that they use.
    (
        "serving-testkit",
        &[
            "hulse-proto",
            "bookie-metadata",
            "serving-broker",
            "hulse-sdk",
        ],
    ),
    ("functions-runtime", &["hulse-proto"]),
    ("functions-sql", &["hulse-proto", "functions-runtime"]),
    (
        "tests-harness",
        &[
            "hulse-proto",
            "bookie-metadata",
            "bookie-client",
            "bookie-node",
            "bookie-upkeep",
            "serving-broker",
            "serving-dispatch",
            "hulse-sdk",
        ],
    ),
];

/// A third party and the only crates of ours that may name it.
const ONLY: &[(&str, &[&str])] = &[
    ("redb", &["bookie-metadata"]),
    ("object_store", &["bookie-tier"]),
    ("foyer", &["bookie-tier"]),
    ("s3s", &["bookie-tier"]),
    ("s3s-fs", &["bookie-tier"]),
    ("clap", &["hulse"]),
    ("clap_complete", &["hulse"]),
    ("figment", &["hulse"]),
    ("tracing-subscriber", &["hulse"]),
    ("hdrhistogram", &["hulse"]),
    ("strsim", &["hulse"]),
    ("anyhow", &["hulse", "tests-harness"]),
    ("axum", &["serving-broker"]),
    (
        "tonic",
        &[
            "hulse-proto",
            "hulse-sdk",
            "serving-broker",
            "bookie-metadata",
            "bookie-transport",
        ],
    ),
    ("turmoil", &["bookie-transport"]),
    ("tonic-reflection", &["serving-broker"]),
    ("tonic-health", &["serving-broker"]),
    ("kafka-protocol", &["serving-kafka"]),
    ("lz4_flex", &["hulse-proto"]),
    ("zstd", &["hulse-proto"]),
    ("snap", &["hulse-proto"]),
    ("flate2", &["hulse-proto"]),
    ("datafusion", &["functions-sql"]),
    ("arrow", &["functions-sql"]),
];

/// The workspace, and the package that stands outside it for the time its dependencies take to build.
const ROOT: &str = "Cargo.toml";
const APART: &str = "functions/sql/Cargo.toml";

/// Licences that a package may come under; one side of an OR is enough, both of an AND are needed.
const LICENCES: [&str; 12] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "CC0-1.0",
    "0BSD",
    "Unlicense",
    "BSL-1.0",
];

fn metadata(manifest: &str, arguments: &[&str]) -> Result<Value, String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--manifest-path", manifest])
        .args(arguments)
        .current_dir(root())
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => serde_json::from_slice(&output.stdout).map_err(|error| error.to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("")
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// (crate, its dependency, is it ours, for tests only) of every direct edge.
fn edges() -> Vec<(String, String, bool, bool)> {
    let described = [ROOT, APART].map(|manifest| {
        metadata(manifest, &["--no-deps", "--offline"]).expect("cargo describes the packages")
    });
    let packages: Vec<_> = described
        .iter()
        .flat_map(|one| list(one, "packages"))
        .collect();
    assert!(
        packages.len() >= ARROWS.len(),
        "{} packages",
        packages.len()
    );
    let mut edges = Vec::new();
    for package in packages {
        for dependency in list(package, "dependencies") {
            let ours = !dependency["path"].is_null();
            let dev = text(dependency, "kind") == "dev";
            let names = (
                text(package, "name").to_owned(),
                text(dependency, "name").to_owned(),
            );
            edges.push((names.0, names.1, ours, dev));
        }
    }
    edges
}

#[test]
fn arrows_between_crates_run_down() {
    let mut findings = Vec::new();
    for (from, to, _, dev) in edges().into_iter().filter(|(_, _, ours, _)| *ours) {
        let allowed = match ARROWS.iter().find(|(name, _)| *name == from) {
            Some((_, allowed)) => allowed.contains(&to.as_str()),
            None => from == "hulse" && (to != "tests-harness" || dev),
        };
        if !allowed {
            findings.push(format!("{from} names {to}; see the arrows of style.md 4.2"));
        }
    }
    none(findings);
}

#[test]
fn third_parties_stay_where_they_belong() {
    let mut findings = Vec::new();
    for (from, to, ours, dev) in edges() {
        let only = ONLY.iter().find(|(name, _)| *name == to);
        if let Some((_, allowed)) = only.filter(|(_, allowed)| !allowed.contains(&from.as_str())) {
            findings.push(format!("{from} names {to}, which only {allowed:?} may"));
        }
        if from == "hulse-proto" && (to == "tokio" || to.starts_with("tokio-")) && !dev && !ours {
            findings.push(format!("{from} names {to}; it has no runtime"));
        }
    }
    none(findings);
}

/// Our crates in the tree of the product, with the features that `cargo build` gives them; with `dev` also those of its tests.
fn features(edges: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "hulse"])
        .args(["--prefix", "none", "--no-dedupe", "--edges", edges])
        .args(["--format", "{p} [{f}]"])
        .current_dir(root())
        .output()
        .expect("cargo draws the tree");
    let words = String::from_utf8(output.stdout).expect("cargo writes text");
    let ours = words.lines().filter(|line| line.contains("(/"));
    ours.map(str::to_owned).collect()
}

/// Memory disks, fault hooks and mutants are behind the feature `testing`; no build of the product has it.
#[test]
fn product_is_built_without_what_is_for_tests() {
    let tests = |lines: &[String]| lines.iter().filter(|line| line.contains("testing")).count();
    let (product, with_tests) = (features("normal,build"), features("normal,build,dev"));
    assert!(product.len() >= ARROWS.len(), "{product:?}");
    assert!(tests(&with_tests) > 0, "{with_tests:?}");
    none(
        product
            .into_iter()
            .filter(|line| line.contains("testing"))
            .collect(),
    );
}

#[test]
fn versions_and_features_stand_in_the_root_table_only() {
    let mut findings = Vec::new();
    let bare = |line: &str| line.split(" # ").next().unwrap_or(line).trim().to_owned();
    let whole = std::fs::read_to_string(root().join(ROOT)).expect("the root manifest is readable");
    let table_of_root: Vec<String> = whole.lines().map(bare).collect();
    // What only the package apart may name stands in its own table, and in no other.
    let its_own = |line: &str| {
        let name = line.split_whitespace().next().unwrap_or("");
        ONLY.contains(&(name, &["functions-sql"]))
    };
    // The package apart repeats the root's lints word for word.
    let lints = whole
        .split_once("[workspace.lints.rust]")
        .and_then(|(_, rest)| rest.split_once("\n\n"))
        .map(|(lints, _)| format!("[lints.rust]{lints}").replace("[workspace.lints", "[lints"))
        .expect("the root manifest has lints");
    for path in crate::tree(root()) {
        if path.file_name().is_none_or(|name| name != "Cargo.toml") {
            continue;
        }
        let manifest = std::fs::read_to_string(root().join(&path)).expect("a manifest is readable");
        let apart = path == std::path::Path::new(APART);
        let mut table = "";
        for (number, line) in manifest.lines().enumerate() {
            if line.starts_with('[') {
                table = line.trim();
            }
            let names_one = matches!(
                table,
                "[dependencies]" | "[dev-dependencies]" | "[build-dependencies]"
            ) && line.contains('=')
                && !line.starts_with('#');
            let allowed = match apart {
                true => {
                    line.contains("{ path = ")
                        || table_of_root.contains(&bare(line))
                        || its_own(line)
                }
                false => line.contains("workspace = true"),
            };
            if names_one && !allowed {
                let place = format!("{}:{}", path.display(), number + 1);
                findings.push(format!("{place}: {line}; write what the root's table says"));
            }
        }
        let takes_lints = match apart {
            true => manifest.contains(&lints),
            false => manifest.contains("[lints]\nworkspace = true"),
        };
        if !takes_lints {
            findings.push(format!(
                "{}: does not take the lints of the workspace",
                path.display()
            ));
        }
    }
    none(findings);
}

#[test]
fn every_package_comes_under_a_permissive_licence() {
    for manifest in [ROOT, APART] {
        come_under_permissive_licences(manifest);
    }
}

fn come_under_permissive_licences(manifest: &str) {
    let all = metadata(manifest, &[]).or_else(|why| {
        // Packages of other platforms are fetched only by a machine with a registry.
        report(&format!(
            "NOT RUN: licences of packages for other platforms: {}",
            why.trim()
        ));
        metadata(manifest, &["--offline", "--filter-platform", &host()])
    });
    let all = all.expect("cargo describes the packages");
    let packages = list(&all, "packages");
    assert!(packages.len() > 100, "{} packages", packages.len());
    let findings = packages
        .iter()
        .filter(|package| !permitted(text(package, "license")));
    let told = findings.map(|package| {
        format!(
            "{} {}: {:?}",
            text(package, "name"),
            text(package, "version"),
            text(package, "license")
        )
    });
    none(told.collect());
    report(&format!("licences: {}", packages.len()));
}

/// The platform of this compiler.
fn host() -> String {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .expect("rustc runs");
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = words.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}

/// A line for the summary of `tests/run`.
fn report(line: &str) {
    println!("{line}");
    if let Some(path) = std::env::var_os("HULSE_TEST_REPORT") {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.expect("HULSE_TEST_REPORT names a file that can be written");
    }
}

/// Judges a licence expression of SPDX, or of the older form with slashes.
fn permitted(expression: &str) -> bool {
    let expression = expression.replace(" / ", " OR ").replace('/', " OR ");
    let mut words = expression.replace('(', " ( ").replace(')', " ) ");
    words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    either(&mut words.as_str()).unwrap_or(false)
}

/// `all OR all ..`; `None` when it is no expression.
fn either(rest: &mut &str) -> Option<bool> {
    let mut value = all(rest)?;
    while let Some(after) = rest.strip_prefix("OR ") {
        *rest = after;
        value |= all(rest)?;
    }
    Some(value)
}

/// `one AND one ..`
fn all(rest: &mut &str) -> Option<bool> {
    let mut value = one(rest)?;
    while let Some(after) = rest.strip_prefix("AND ") {
        *rest = after;
        value &= one(rest)?;
    }
    Some(value)
}

/// A name, perhaps WITH an exception, or an expression in parentheses.
fn one(rest: &mut &str) -> Option<bool> {
    if let Some(inner) = rest.strip_prefix("( ") {
        *rest = inner;
        let value = either(rest)?;
        *rest = rest.strip_prefix(')')?.trim_start();
        return Some(value);
    }
    let end = [" OR ", " AND ", " )"]
        .iter()
        .filter_map(|stop| rest.find(stop))
        .min();
    let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = after.trim_start();
    (!name.is_empty()).then(|| LICENCES.contains(&name))
}

#[test]
fn licence_expressions_are_judged_by_their_operators() {
    for (expression, expected) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("Apache-2.0 / MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
        ("(MIT AND GPL-3.0) OR LGPL-2.1", false),
        ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true),
        ("Apache-2.0 WITH Other-exception", false),
        ("MPL-2.0", false),
        ("", false),
        ("(MIT", false),
    ] {
        assert_eq!(permitted(expression), expected, "{expression}");
    }
}
