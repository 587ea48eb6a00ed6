//! Pages that say where something is held: every file, function, constant and type that they name must exist.
//!
//! A path in backquotes begins at the top of the repository or at the page's folder. A name behind it in the same line is one of that
//! file: a small one must be defined there, a capital one must at least occur in its code (a variant, say). A name without a file
//! before it must occur in the code of the product.

use std::collections::BTreeSet;
use std::path::Path;

use crate::source::Source;

/// What stands before a name where it is defined.
const DEFINES: [&str; 8] = [
    "fn", "const", "static", "struct", "enum", "trait", "type", "mod",
];

/// What a page names that is not there. `product` are the words of the product's code.
pub fn missing(root: &Path, page: &str, text: &str, product: &BTreeSet<String>) -> Vec<String> {
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut file: Option<Source> = None;
        let in_table = line.starts_with('|');
        for quoted in line.split('`').skip(1).step_by(2) {
            let place = format!("{page}:{}", number + 1);
            if is_path(quoted) {
                let found = [folder.join(quoted), quoted.into()]
                    .into_iter()
                    .find(|path| root.join(path).exists());
                match found {
                    None => findings.push(format!("{place}: {quoted} does not exist")),
                    Some(path) if quoted.ends_with(".rs") => file = Some(Source::read(root, &path)),
                    Some(_) => {}
                }
            } else if is_name(quoted) && (in_table || is_telling(quoted)) {
                let there = match &file {
                    Some(file) => defines(&file.code, quoted),
                    None => !is_telling(quoted) || product.contains(quoted),
                };
                if !there {
                    let holder = file.as_ref().map_or("the product", |file| &file.path);
                    findings.push(format!("{place}: {quoted} is not in {holder}"));
                }
            }
        }
    }
    findings
}

/// The sections of a page whose headings begin so; all other lines are empty, so that their numbers stay.
pub fn sections(text: &str, heading: &str) -> String {
    let mut within = false;
    let lines = text.lines().map(|line| {
        within = match line.starts_with("## ") {
            true => line.starts_with(heading),
            false => within,
        };
        if within { line } else { "" }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The words of some code.
pub fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
}

fn is_path(quoted: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    quoted.contains('/') && quoted.chars().all(fits)
}

fn is_name(quoted: &str) -> bool {
    quoted.chars().all(|c| c.is_alphanumeric() || c == '_')
        && quoted.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// True for what is certainly a name of code: it has an underscore, or a capital behind a small letter.
fn is_telling(name: &str) -> bool {
    let small = name.chars().any(char::is_lowercase);
    name.contains('_') || (small && name.chars().skip(1).any(char::is_uppercase))
}

fn defines(code: &str, name: &str) -> bool {
    if name.starts_with(char::is_uppercase) && name.chars().any(char::is_lowercase) {
        return words(code).any(|word| word == name);
    }
    let mut before = "";
    for word in words(code) {
        if word == name && DEFINES.contains(&before) {
            return true;
        }
        before = word;
    }
    let field = format!("{name}: ");
    let mut lines = code.lines().map(str::trim_start);
    lines.any(|line| line.starts_with(&field) || line.starts_with(&format!("pub {field}")))
}

#[test]
fn sections_of_a_page_keep_their_lines() {
    let page = "# A\nx\n## Follow b\ny\n### c\nz\n## D\nw";
    let kept = sections(page, "## Follow ");
    assert_eq!(kept, "\n\n## Follow b\ny\n### c\nz\n\n");
}

#[test]
fn page_that_names_what_is_not_there_is_told() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let product = BTreeSet::from(["late_time_max".to_owned()]);
    let told = |text: &str| missing(root, "tests/README.md", text, &product);
    let good = "| x | `tidy/pages.rs` `missing`, `words`, `Source` |\n`late_time_max`, `off`, `sync = off`, `tests/tidy/`";
    assert_eq!(told(good), Vec::<String>::new());
    for sin in [
        "`tidy/nowhere.rs`",
        "| x | `tidy/pages.rs` `mizzing` |",
        "| x | `tidy/pages.rs` `Sauce` |",
        "`tidy/pages.rs` `late_time_max`",
        "`no_such_name`",
        "`NoSuchName`",
    ] {
        assert_eq!(told(sin).len(), 1, "{sin}");
    }
}
