//! The stack that the first engine of a process, and its first mapping, need of the thread that makes them.

mod child;
mod files;
mod stacks;

use files::made_file;
use softfault::{Engine, Faults, Swap};
use stacks::{Stack, on_stack};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What is enough for the first mapping of a process under `softfault run`, less what the call and the thread itself need there
/// (`docs/run-contract.md`).
const ENOUGH: usize = 24 << 10;

/// Failed before: 140 KiB, so that a thread of 128 KiB that was the first to map, or that forked, got SIGSEGV.
#[test]
fn the_first_mapping_of_a_process_needs_no_large_stack() {
    const TEST: &str = "the_first_mapping_of_a_process_needs_no_large_stack";
    let Some(scenario) = child::scenario() else {
        for name in ["file", "anonymous", "threads"] {
            child::succeeds(TEST, name);
        }
        return;
    };
    let file = made_file("first-map", 1 << 20);
    let directory = std::env::temp_dir();
    let seen = AtomicU8::new(0);
    let first = || {
        let builder = Engine::builder().memory(16 << 20).allow_kernel_maps(false);
        let builder = match scenario.as_str() {
            "anonymous" => builder.swap(Swap::in_dir(&directory).bytes(64 << 20)),
            "threads" => builder.faults(Faults::Threads),
            _ => builder,
        };
        let engine = builder.build().unwrap();
        match scenario.as_str() {
            "anonymous" => {
                let mut map = engine.map_anon(1 << 20).unwrap();
                map[77] = 5;
                seen.store(map[77], Relaxed);
            }
            _ => {
                // SAFETY: nobody writes to the file.
                let map = unsafe { engine.map(&file) }.unwrap();
                seen.store(map[77], Relaxed);
            }
        }
    };
    let used = on_stack(&Stack::new(1 << 20), &first);
    println!("{scenario}: {used} bytes");
    assert!(used <= ENOUGH, "{used} bytes");
}
