//! The page, block by block.

/// The page.
const PAGE: &str = include_str!("../../../serving/sdk/losing-nothing.md");
/// Its blocks of Rust, in their order.
const FILES: &[(&str, &str)] = &[
    ("produce.rs", include_str!("produce.rs")),
    ("unknown.rs", include_str!("unknown.rs")),
    ("consume.rs", include_str!("consume.rs")),
    ("seek.rs", include_str!("seek.rs")),
    ("prove.rs", include_str!("prove.rs")),
];

/// A block between fences.
pub(super) struct Block {
    /// What stands behind the fence that opens it.
    pub(super) language: &'static str,
    pub(super) text: &'static str,
}

/// Every block, in order.
pub(super) fn blocks() -> Vec<Block> {
    // Outside, inside, outside, …
    let inside = PAGE.split("```").skip(1).step_by(2);
    inside
        .map(|block| {
            let (language, text) = block.split_once('\n').expect("a fence ends its line");
            Block { language, text }
        })
        .collect()
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
