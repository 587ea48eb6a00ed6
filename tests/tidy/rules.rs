//! Rules of one Rust file. Each has samples that break it.

use crate::source::Source;

/// Longest file, lines (style.md 4.4). Longer ones say in their header why, with the word "longer" (style.md 6.8).
const LINES_MAX: usize = 500;

/// A rule.
pub struct Rule {
    /// For messages of tests.
    pub name: &'static str,
    /// Findings in a file.
    pub check: fn(&Source) -> Vec<String>,
    /// Files that break it: path and text.
    pub sins: &'static [(&'static str, &'static str)],
}

/// All of them.
pub const RULES: &[Rule] = &[
    Rule {
        name: "header",
        check: header,
        sins: &[
            ("proto/src/x.rs", "fn f() {}\n"),
            ("proto/src/x.rs", "//!\nfn f() {}\n"),
        ],
    },
    Rule {
        name: "length",
        check: length,
        sins: &[("proto/src/x.rs", LONG)],
    },
    Rule {
        name: "type names",
        check: type_names,
        sins: &[
            ("x.rs", "pub struct LedgerManager {\n"),
            ("x.rs", "enum PathUtil {\n"),
            ("x.rs", "pub(crate) trait RequestHandler: Send {\n"),
            ("x.rs", "type TopicInfo = ();\n"),
            ("x.rs", "struct OrderService;\n"),
        ],
    },
    Rule {
        name: "biased",
        check: biased,
        sins: &[
            ("x.rs", "tokio::select! {\n    a = b => {}\n}\n"),
            ("x.rs", "select!{ x = y => z }"),
        ],
    },
    Rule {
        name: "unfinished",
        check: unfinished,
        sins: &[
            ("x.rs", "fn f() { todo!() }"),
            ("x.rs", "#[ignore]\nfn f() {}"),
            ("x.rs", "#[ignore = \"slow\"]\nfn f() {}"),
            ("x.rs", "#[allow(dead_code)]\nfn f() {}"),
        ],
    },
    Rule {
        name: "effects",
        check: effects,
        sins: &[
            ("bookie/client/src/x.rs", "let t = SystemTime::now();"),
            (
                "bookie/client/src/x.rs",
                "let t = std::time::Instant::now();",
            ),
            (
                "bookie/client/src/x.rs",
                "use std::time::{Duration, Instant};\nlet t = Instant::now();",
            ),
            ("serving/broker/src/x.rs", "thread::sleep(d);"),
            ("serving/broker/src/x.rs", "let x = rand::rng();"),
            ("serving/sdk/src/x.rs", "Uuid::new_v4()"),
        ],
    },
];

/// As many lines as are too many.
const LONG: &str = {
    const TEXT: [u8; LINES_MAX + 16] = {
        let mut text = [b'\n'; LINES_MAX + 16];
        let head = b"//! A header.\n";
        let mut at = 0;
        while at < head.len() {
            text[at] = head[at];
            at += 1;
        }
        text
    };
    match std::str::from_utf8(&TEXT) {
        Ok(text) => text,
        Err(_) => panic!("ASCII is UTF-8"),
    }
};

fn header(source: &Source) -> Vec<String> {
    let first = source.text.lines().next().unwrap_or("");
    let words = first.strip_prefix("//!").unwrap_or("").trim();
    match words.is_empty() {
        true => vec![source.at(0, "no `//!` header; say what the file is")],
        false => Vec::new(),
    }
}

fn length(source: &Source) -> Vec<String> {
    // Tests at the end of a file are not what has to be read at once.
    let production = source.text.split("\n#[cfg(test)]\nmod tests {").next();
    let lines = production.unwrap_or("").lines().count();
    let said_why = source.header().to_lowercase().contains("longer");
    match lines > LINES_MAX && !said_why {
        true => vec![format!(
            "{}: {lines} lines, more than {LINES_MAX}; split it",
            source.path
        )],
        false => Vec::new(),
    }
}

/// Words of a name in camel case.
fn words(name: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = name
        .match_indices(char::is_uppercase)
        .map(|(at, _)| at)
        .collect();
    starts.push(name.len());
    starts
        .windows(2)
        .map(|pair| &name[pair[0]..pair[1]])
        .collect()
}

fn type_names(source: &Source) -> Vec<String> {
    const ANYWHERE: [&str; 7] = [
        "Manager", "Helper", "Helpers", "Util", "Utils", "Handler", "Context",
    ];
    const LAST: [&str; 3] = ["Info", "Data", "Service"];
    let mut findings = Vec::new();
    for (number, line) in source.lines() {
        let mut tokens = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        // An indented `type` fulfils a trait, which gives its name.
        let alias = line.starts_with("type ") || line.starts_with("pub");
        let declares = tokens
            .any(|token| matches!(token, "struct" | "enum" | "trait") || token == "type" && alias);
        let Some(name) = tokens.find(|token| !token.is_empty()).filter(|_| declares) else {
            continue;
        };
        let parts = words(name);
        let last = parts.last().filter(|word| LAST.contains(word));
        let grpc = last == Some(&"Service") && source.code.contains("async_trait");
        let anywhere = parts.iter().find(|word| ANYWHERE.contains(word));
        if let Some(word) = anywhere.or(last.filter(|_| !grpc)) {
            let words = format!("{name} says {word}; name what it is (style.md 4.5)");
            findings.push(format!("{}:{number}: {words}", source.path));
        }
    }
    findings
}

fn biased(source: &Source) -> Vec<String> {
    source
        .code
        .match_indices("select!")
        .filter(|(at, found)| {
            let body = source.code[at + found.len()..].trim_start();
            let body = body.strip_prefix(['{', '(']).unwrap_or(body);
            !body.trim_start().starts_with("biased;")
        })
        .map(|(at, _)| source.at(at, "select! without `biased;`: its order would be random"))
        .collect()
}

fn unfinished(source: &Source) -> Vec<String> {
    let allowed = source.path == "proto/src/wire.rs"; // Generated code inside.
    let mut findings = Vec::new();
    for (sin, words) in [
        ("todo!", "unfinished"),
        ("unimplemented!", "unfinished"),
        (
            "#[ignore",
            "a test that does not run; give it to `tests/run --long`",
        ),
        ("#[allow(", "use #[expect(.., reason = ..)]"),
    ] {
        let hits = source
            .code
            .match_indices(sin)
            .filter(|_| !(allowed && sin == "#[allow("));
        findings.extend(hits.map(|(at, _)| source.at(at, words)));
    }
    findings
}

/// Files that are a seam to the clock or to chance, with the reason; a path that ends in `/` means all below it.
const SEAMS: &[(&str, &str)] = &[
    (
        "serving/cli/",
        "production end of every seam: wall clock, seeds, measured times",
    ),
    (
        "serving/sdk/src/clock.rs",
        "the client's wall clock stamps records",
    ),
    (
        "serving/sdk/src/client/",
        "a client that was given no seed takes one from the system",
    ),
    (
        "bookie/metadata/src/embedded/",
        "the store's own thread waits for its disk; nothing simulated runs on it",
    ),
    ("tests/", "tests of real processes wait for real time"),
];

fn effects(source: &Source) -> Vec<String> {
    // Tests of real disks and threads take real time.
    let tests = source.path.contains("/tests/") || source.path.ends_with("/tests.rs");
    let seam = SEAMS.iter().any(|(seam, _)| {
        source.path == *seam || seam.ends_with('/') && source.path.starts_with(seam)
    });
    if tests || seam {
        return Vec::new();
    }
    let std_instant = source.code.match_indices("std::time::").any(|(at, _)| {
        let rest = &source.code[at + "std::time::".len()..];
        rest.split(';')
            .next()
            .is_some_and(|names| names.contains("Instant"))
    });
    let mut findings = Vec::new();
    for (sin, words) in [
        (
            "SystemTime::now",
            "wall time comes through proto::time::WallClock",
        ),
        ("std::time::Instant::now", "passing time is tokio::time"),
        ("thread::sleep", "wait with tokio::time"),
        (
            "rand::rng()",
            "chance comes from a seeded generator that is passed in",
        ),
        (
            "thread_rng",
            "chance comes from a seeded generator that is passed in",
        ),
        ("from_os_rng", "seeds come from cli"),
        (
            "Uuid::new_v4",
            "make it from a seeded generator that is passed in",
        ),
        (
            "Uuid::now_v7",
            "make it from a seeded generator that is passed in",
        ),
    ] {
        let hits = source.code.match_indices(sin);
        findings.extend(hits.map(|(at, _)| source.at(at, words)));
    }
    if std_instant && findings.is_empty() {
        let plain = source
            .code
            .match_indices("Instant::now")
            .filter(|(at, _)| !source.code[..*at].ends_with("time::"));
        findings.extend(plain.map(|(at, _)| source.at(at, "passing time is tokio::time")));
    }
    findings
}
