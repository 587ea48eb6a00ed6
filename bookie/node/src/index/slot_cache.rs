//! Pages of slots that were read lately, bounded in bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::log::footer::{FooterSlot, PAGE_SLOTS};

/// What a page takes in memory, bytes, bookkeeping included.
const PAGE_MEMORY_BYTES: usize = PAGE_SLOTS * size_of::<FooterSlot>() + 160;
/// Some pages are always kept: a read needs two at a time.
const PAGES_MIN: usize = 8;

type Page = Arc<Vec<FooterSlot>>;

/// The cache. The page that was used longest ago goes first.
pub struct SlotCache {
    pages_max: usize,
    state: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    /// By file and number of the page; with the tick of its last use.
    pages: BTreeMap<(u32, u32), (u64, Page)>,
    by_use: BTreeMap<u64, (u32, u32)>,
    tick: u64,
}

impl SlotCache {
    /// A cache of at most `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        Self {
            pages_max: (bytes / PAGE_MEMORY_BYTES).max(PAGES_MIN),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, Pages> {
        let state = self.state.lock();
        state.expect("no code panics while it holds the lock")
    }

    /// The page, if it is here.
    pub fn get(&self, file: u32, page: u32) -> Option<Page> {
        let mut state = self.state();
        state.tick += 1;
        let tick = state.tick;
        let (used, found) = state.pages.get_mut(&(file, page))?;
        let (before, found) = (std::mem::replace(used, tick), Arc::clone(found));
        state.by_use.remove(&before);
        state.by_use.insert(tick, (file, page));
        Some(found)
    }

    /// Keeps a page.
    pub fn insert(&self, file: u32, page: u32, slots: &Page) {
        let mut state = self.state();
        state.tick += 1;
        let tick = state.tick;
        let replaced = state.pages.insert((file, page), (tick, Arc::clone(slots)));
        if let Some((before, _)) = replaced {
            state.by_use.remove(&before);
        }
        state.by_use.insert(tick, (file, page));
        while state.pages.len() > self.pages_max
            && let Some((_, oldest)) = state.by_use.pop_first()
        {
            state.pages.remove(&oldest);
        }
    }

    /// Bytes that the pages take.
    pub fn bytes(&self) -> usize {
        self.state().pages.len() * PAGE_MEMORY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_keeps_what_was_used_last_within_its_bytes() {
        let cache = SlotCache::new(10 * PAGE_MEMORY_BYTES);
        let page: Page = Arc::new(Vec::new());
        for number in 0..10 {
            cache.insert(1, number, &page);
        }
        assert!(cache.get(1, 0).is_some());
        cache.insert(1, 10, &page);
        assert!(cache.get(1, 0).is_some() && cache.get(1, 1).is_none());
        for number in 0..1000 {
            cache.insert(2, number % 100, &page);
            assert!(cache.bytes() <= 10 * PAGE_MEMORY_BYTES);
        }
    }
}
