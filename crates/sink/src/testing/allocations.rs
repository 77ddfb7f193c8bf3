//! How much memory one thread holds, for tests that hold an estimate against it.
//!
//! Counts what this thread takes from and gives back to Rust's allocator. Memory that C libraries take
//! by themselves (zstd) is not seen.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: i64) {
    // A thread that ends has no counter any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: everything is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Both may be there for a moment.
        count(new_size as i64);
        // SAFETY: as above.
        let moved = unsafe { System.realloc(ptr, layout, new_size) };
        count(-(layout.size() as i64));
        moved
    }
}

/// Runs `f`; gives the most memory that this thread held meanwhile beyond what it held before, bytes.
pub fn most_held<T>(f: impl FnOnce() -> T) -> (u64, T) {
    let before = HELD.get();
    MOST.set(before);
    let result = f();
    ((MOST.get() - before).max(0) as u64, result)
}
