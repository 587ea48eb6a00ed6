//! The page, block by block.

use super::super::pages::{self, Block};

/// The page.
pub(super) const PAGE: &str = include_str!("../../../serving/sdk/losing-nothing.md");
/// Its blocks of Rust, in their order.
const FILES: &[(&str, &str)] = &[
    ("produce.rs", include_str!("produce.rs")),
    ("unknown.rs", include_str!("unknown.rs")),
    ("consume.rs", include_str!("consume.rs")),
    ("seek.rs", include_str!("seek.rs")),
    ("prove.rs", include_str!("prove.rs")),
];

/// Every block, in order.
pub(super) fn blocks() -> Vec<Block> {
    pages::blocks(PAGE)
}

#[test]
fn rust_on_the_page_is_what_the_tests_run() {
    let blocks = blocks();
    let shown = blocks.iter().filter(|block| block.language == "rust");
    let shown: Vec<&str> = shown.map(|block| block.text).collect();
    assert_eq!(shown.len(), FILES.len());
    for (shown, (file, run)) in shown.into_iter().zip(FILES) {
        let header = run.lines().take_while(|line| line.starts_with("//!"));
        let header: usize = header.map(|line| line.len() + 1).sum();
        assert_eq!(shown, run[header..].trim_start(), "{file}");
    }
}
