//! A global allocator that knows how much the current thread holds, so that a decoder's greed shows.
//!
//! Only Rust's allocations count; zstd's own window does not.
#![expect(
    unsafe_code,
    reason = "a global allocator cannot be written without; it only counts and forwards to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What a decoder may hold at once beside four times its input.
pub const BYTES_MAX: usize = 64 << 20;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(change: isize) {
    // During a thread's end the counters are gone; nobody measures then.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call goes to `System` unchanged; counting neither allocates nor touches the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is also the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above; `memory` came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above; `memory` came from `System`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Runs `work` and tells how many bytes this thread held at most beyond what it held before.
pub fn peak_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let answer = work();
    (answer, (PEAK.get() - before) as usize)
}

#[test]
fn peak_counts_what_was_freed_again() {
    let (_, peak) = peak_bytes(|| drop(std::hint::black_box(vec![0_u8; 3 << 20])));
    assert!((3 << 20..4 << 20).contains(&peak), "{peak}");
    let mut grown = Vec::new();
    let (_, peak) = peak_bytes(|| (0..1 << 20).for_each(|byte| grown.push(byte as u8)));
    assert!((1 << 20..3 << 20).contains(&peak), "{peak}");
    let (_, peak) = peak_bytes(|| std::hint::black_box(1));
    assert_eq!(peak, 0);
}
