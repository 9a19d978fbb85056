//! The swap file's limits in the fault handler: no heap, and little stack.

mod stacks;
mod store_scene;
mod swap_scene;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use softfault::Swap;
use softfault::store::Rings;
use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{Complete, NO_COOKIE, Read, StoreError};
use softfault_engine::swap::SwapDevice;
use stacks::{Stack, on_stack};
use store_scene::{Frames, PAGE};
use swap_scene::{BOTH, disk, fill};

/// Counts the heap's allocations by this thread.
struct Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's, and a number.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

struct Nobody;

impl Complete for Nobody {
    fn complete(&self, _cookie: u64, result: Result<usize, StoreError>) {
        assert_eq!(result, Ok(16 * PAGE));
    }
}

/// Pages, by their addresses.
struct Sources(Vec<*const u8>);

// SAFETY: the pages are read only.
unsafe impl Sync for Sources {}

type Use = fn(&dyn SwapDevice, &Frames, &Sources);

/// The calls of a fault on a device, with slots that compress and that do not.
const VERBS: [(&str, Use); 4] = [
    ("write", |file, _, sources| {
        // SAFETY: the frames are ours.
        unsafe { file.write(0, &sources.0) }.expect("written");
    }),
    ("read", |file, frames, _| {
        // SAFETY: the frames are ours.
        let read = unsafe { file.read(0, frames.page(0), 16 * PAGE) };
        assert_eq!(read, Ok(16 * PAGE));
    }),
    ("read ahead", |file, frames, _| {
        let ahead = Read {
            cookie: 7,
            offset: 16 * PAGE as u64,
            buffer: frames.page(16),
            bytes: 16 * PAGE,
        };
        // SAFETY: the frames are ours.
        assert_eq!(unsafe { file.submit(&[ahead]) }, 1);
        file.reap(7, &Nobody, store_scene::FOREVER_NS);
        file.reap(NO_COOKIE, &Nobody, 0);
    }),
    ("discard", |file, _, sources| {
        file.discard(0..(sources.0.len() * PAGE) as u64);
    }),
];

/// The part of the handler's 3 KiB that reading ahead takes anyway.
const MOST_STACK: usize = 1664;

#[test]
fn a_device_needs_no_heap_and_little_stack() {
    assert_eq!(PAGE, PAGE_SIZE);
    let source = Frames::new(600);
    for slot in 0..600 {
        // SAFETY: the page is ours.
        fill(
            unsafe { core::slice::from_raw_parts_mut(source.page(slot), PAGE) },
            slot,
            0,
        );
    }
    let pages = (0..600).map(|slot| source.page(slot).cast_const());
    let pages = Sources(pages.collect());
    for compression in BOTH {
        let swap = Swap::in_dir(disk()).bytes(1 << 23).compression(compression);
        let rings = Arc::new(Rings::new().expect("rings"));
        let file = swap.open(0, Some(rings)).expect("a swap file");
        let frames = Frames::new(32);
        for (name, verb) in VERBS {
            let before = ASKED.get();
            verb(&file, &frames, &pages);
            assert_eq!(ASKED.get(), before, "{compression:?} {name} asked the heap");
        }
        swap_scene::check(&frames, 0, 0, &[0; 32]);
        for (name, verb) in VERBS {
            let depth = on_stack(&Stack::new(16 << 10), &|| verb(&file, &frames, &pages));
            println!("{compression:?} {name}: {depth} bytes of stack");
            assert!(depth <= MOST_STACK, "{compression:?} {name}: {depth} bytes");
        }
    }
}
