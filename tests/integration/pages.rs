//! Pages for users whose blocks are run: what a block of shell prints must be the block of text that stands below it.

use std::path::Path;
use std::process::{Command, Output};

use super::server::{HULSE, Server};

/// A block between fences.
pub(super) struct Block {
    /// What stands behind the fence that opens it.
    pub(super) language: &'static str,
    pub(super) text: &'static str,
}

/// Every block of a page, in order.
pub(super) fn blocks(page: &'static str) -> Vec<Block> {
    // Outside, inside, outside, …
    let inside = page.split("```").skip(1).step_by(2);
    inside
        .map(|block| {
            let (language, text) = block.split_once('\n').expect("a fence ends its line");
            Block { language, text }
        })
        .collect()
}

/// Runs the shell of a page, block after block in one folder; how many there were.
pub(super) fn run_shell(server: &Server, page: &'static str) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks(page);
    let mut run = 0;
    for (place, block) in blocks.iter().enumerate() {
        if block.language != "sh" {
            continue;
        }
        let output = shell(server, folder.path(), block.text);
        let told = String::from_utf8_lossy(&output.stdout);
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{told}{words}", block.text);
        if let Some(shown) = blocks.get(place + 1).filter(|next| next.language == "text") {
            assert_eq!(told, shown.text, "{}\n{words}", block.text);
        }
        run += 1;
    }
    run
}

/// Runs the lines of a block as a user would, who has nothing else set.
fn shell(server: &Server, folder: &Path, lines: &str) -> Output {
    let binary = Path::new(HULSE).parent().unwrap().display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new("bash")
        .args(["-euo", "pipefail", "-c", lines])
        .current_dir(folder)
        .env("PATH", format!("{binary}:{path}"))
        .env("HULSE_SERVER", server.address())
        .env("HULSE_PROFILES", folder.join("profiles.toml"))
        .output()
        .expect("bash can be started")
}
