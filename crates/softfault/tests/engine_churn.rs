//! Engines that are made and dropped again and again. Alone in its process: it looks at
//! all that the process has.

mod child;
mod files;

use files::{check, made_file};
use softfault::{AsyncReads, Engine, MIN_MEMORY};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Queues of `io_submit(2)` that the process has: the kernel maps each.
fn queues() -> BTreeSet<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let queues = maps.lines().filter(|line| line.contains("[aio]"));
    queues.map(str::to_owned).collect()
}

fn engine() -> Engine {
    let builder = Engine::builder()
        .allow_kernel_maps(false)
        .memory(MIN_MEMORY);
    builder.async_reads(AsyncReads::IoSubmit).build().unwrap()
}

#[test]
fn queues_are_made_once_and_go_from_engine_to_engine() {
    let file = made_file("churn", 4 << 20);
    let scan = |engine: &Engine| {
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map(&file) }.unwrap();
        (0..map.len()).step_by(4096).for_each(|at| check(&map, at));
    };
    // None is made before a fault needs it: a process that has one waits for the kernel when it ends.
    let unused = Engine::builder().small_maps(0).memory(MIN_MEMORY);
    let unused = unused.reads(softfault::Reads::Auto).build().unwrap();
    // A map by a descriptor that is open for writing would be the kernel's from the start.
    let to_read = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    // SAFETY: nobody writes to the file.
    let map = unsafe { unused.map(&to_read) }.unwrap();
    match unused.stats().kernel.switched_to_kernel {
        0 => softfault_skip::skipped(
            "kernel",
            "it does not serve its page cache: no engine without queues",
        ),
        _ => assert!(queues().is_empty() && unused.stats().async_reads.is_none()),
    }
    drop(map);
    let first = engine();
    assert!(queues().is_empty());
    scan(&first);
    let made = queues();
    if made.is_empty() {
        return softfault_skip::skipped("kernel", "there is no io_submit(2)");
    }
    drop(first);
    assert_eq!(queues(), made);
    for _ in 0..50 {
        let engine = engine();
        // Neither made nor destroyed: that took 30 ms each.
        assert_eq!(queues(), made);
        scan(&engine);
        drop(engine);
        assert_eq!(queues(), made);
    }
    // Two at a time share none.
    let both = [engine(), engine()];
    both.iter().for_each(scan);
    let twice = queues();
    assert_eq!(twice.len(), 2 * made.len());
    std::thread::scope(|scope| {
        for engine in &both {
            scope.spawn(|| scan(engine));
        }
    });
    // A child has its own.
    let status = child::forked(|| {
        let engine = engine();
        scan(&engine);
        0
    });
    assert_eq!(status, 0);
    drop(both);
    let many: Vec<_> = (0..40).map(|_| engine()).collect();
    many.iter().for_each(scan);
    drop(many);
    // Not all of those are kept.
    assert!(queues().len() <= 32.max(made.len()), "{}", queues().len());
}
