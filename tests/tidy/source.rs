//! The files of the tree, and a Rust file with its comments and strings blanked.

use std::path::{Path, PathBuf};

/// Folders that are not ours to judge.
const SKIPPED: [&str; 3] = ["target", ".git", "hulse-data"];

/// Every file of the tree but what is built or kept by tools, relative to `root`, sorted.
pub fn tree(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(root.join(&folder)).expect("a folder of the tree is readable");
        for entry in entries {
            let entry = entry.expect("an entry of the tree is readable");
            let name = entry.file_name();
            let path = folder.join(&name);
            let kind = entry.file_type().expect("an entry has a kind");
            if kind.is_dir() && !SKIPPED.contains(&name.to_string_lossy().as_ref()) {
                folders.push(path);
            } else if kind.is_file() && name != "Cargo.lock" && name != "LICENSE" {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// A Rust file.
pub struct Source {
    /// Relative to the root, with `/`.
    pub path: String,
    /// As it stands.
    pub text: String,
    /// The same bytes with comments and the insides of strings blanked; line ends are kept.
    pub code: String,
}

impl Source {
    /// Reads one.
    pub fn read(root: &Path, path: &Path) -> Self {
        let text = std::fs::read_to_string(root.join(path));
        Self::new(path.to_owned(), text.expect("a Rust file is readable text"))
    }

    /// Takes one that is in memory.
    pub fn new(path: PathBuf, text: String) -> Self {
        let code = blank(&text);
        Self {
            path: path.to_string_lossy().replace('\\', "/"),
            text,
            code,
        }
    }

    /// A finding at a byte of the code.
    pub fn at(&self, byte: usize, words: impl AsRef<str>) -> String {
        let line = self.code[..byte].matches('\n').count() + 1;
        format!("{}:{line}: {}", self.path, words.as_ref())
    }

    /// Lines of code with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .lines()
            .enumerate()
            .map(|(number, line)| (number + 1, line))
    }

    /// The `//!` lines at the top.
    pub fn header(&self) -> String {
        let lines = self.text.lines().take_while(|line| line.starts_with("//!"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Blanks comments and the insides of strings and characters.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (from, end) = if rest.starts_with(b"//") {
            (
                at,
                at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
            )
        } else if rest.starts_with(b"/*") {
            (at, at + comment(rest))
        } else if let Some((open, length)) = raw_string(bytes, at) {
            (at + open, at + length)
        } else if rest[0] == b'"' {
            (at + 1, at + string(rest))
        } else if rest[0] == b'\'' {
            match character(rest) {
                Some(length) => (at + 1, at + length),
                None => {
                    at += 1;
                    continue;
                }
            }
        } else {
            at += 1;
            continue;
        };
        for byte in &mut out[from..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(out).expect("whole characters were replaced by spaces")
}

/// Length of a block comment, which may hold others.
fn comment(bytes: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Length of a string, quotes included.
fn string(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Start of the inside and length of a raw string that begins here.
fn raw_string(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let before = at.checked_sub(1).map(|before| bytes[before]);
    if before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let rest = &bytes[at..];
    let prefix = usize::from(rest.first() == Some(&b'b'));
    if rest.get(prefix) != Some(&b'r') {
        return None;
    }
    let hashes = rest[prefix + 1..]
        .iter()
        .take_while(|byte| **byte == b'#')
        .count();
    let open = prefix + 1 + hashes + 1;
    if rest.get(open - 1) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let inside = rest[open..]
        .windows(close.len())
        .position(|window| window == close);
    Some((
        open,
        inside.map_or(rest.len(), |inside| open + inside + close.len()),
    ))
}

/// Length of a character literal; `None` for a lifetime.
fn character(bytes: &[u8]) -> Option<usize> {
    if bytes.get(1) == Some(&b'\\') {
        let end = bytes[3.min(bytes.len())..]
            .iter()
            .position(|byte| *byte == b'\'')?;
        return Some(3 + end + 1);
    }
    let text = std::str::from_utf8(&bytes[1..bytes.len().min(5)]);
    let valid = match &text {
        Ok(text) => text.chars().next(),
        Err(error) => std::str::from_utf8(&bytes[1..1 + error.valid_up_to()])
            .ok()?
            .chars()
            .next(),
    };
    let length = 1 + valid?.len_utf8();
    (bytes.get(length) == Some(&b'\'')).then_some(length + 1)
}

#[test]
fn comments_and_strings_are_blanked_and_code_is_kept() {
    for (text, code) in [
        ("a // b\nc", "a     \nc"),
        ("a /* b /* c */ d */ e", "a                   e"),
        ("f(\"x\\\"y\") z", "f(\"     ) z"),
        ("r#\"a\"b\"# c", "r#\"      c"),
        ("'a' 'b: loop", "'   'b: loop"),
        ("'\\'' x '\\u{e9}' y", "'    x '        y"),
        ("'\u{e9}' x", "'    x"),
        ("&'static str", "&'static str"),
        ("number r\n", "number r\n"),
    ] {
        assert_eq!(blank(text), code, "{text}");
    }
}
