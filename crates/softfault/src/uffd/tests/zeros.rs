//! Zeros that cost nothing until somebody writes to them.

use super::served::serve;
use super::{page, read, real, reserve, resident_kb, without, write};
use core::sync::atomic::{AtomicBool, Ordering};
use softfault_engine::PAGE_SIZE;
use softfault_engine::mmu::{Mmu, Zeroed};
use softfault_oracle::Finally;
use std::slice::from_ref;
use std::sync::Arc;

const PAGES: usize = 512;

#[test]
fn zeros_cost_nothing_until_written_to() {
    let mmu = Arc::new(real());
    let window = reserve(&mmu, PAGES);
    let faults = {
        let (mmu, window) = (mmu.clone(), window.clone());
        serve(&window.clone(), move |addr, _| {
            mmu.make_writable(&window, addr).unwrap()
        })
    };
    for at in 0..PAGES {
        assert_eq!(
            mmu.zero_page(&window, page(&window, at)),
            Ok(Zeroed::Nothing)
        );
        assert_eq!(read(&window, at), 0);
    }
    assert_eq!(resident_kb(&window), 0);
    assert_eq!(faults.take(), (0, 0));
    for at in 0..PAGES / 2 {
        write(&window, at, 1);
        assert_eq!(faults.take(), (0, 1), "page {at}");
        write(&window, at, 2);
        assert_eq!((faults.take(), read(&window, at)), ((0, 0), 2), "page {at}");
    }
    assert_eq!(resident_kb(&window), PAGES / 2 * PAGE_SIZE / 1024);
    // Those that are left are still protected by nothing but themselves.
    mmu.protect(from_ref(&window.range()));
    write(&window, PAGES - 1, 1);
    assert_eq!(faults.take(), (0, 1));
    assert_eq!(read(&window, PAGES - 2), 0);
}

#[test]
fn a_write_between_mapping_and_protecting_is_noticed() {
    let mmu = real();
    let window = reserve(&mmu, 4);
    let faults = serve(&window, |_, _| ());
    for at in 0..4 {
        let zeroed = mmu.zeros(&window, page(&window, at), || write(&window, at, 7));
        assert_eq!(zeroed, Ok(Zeroed::Memory), "page {at}");
        assert_eq!(read(&window, at), 7, "the write stays");
        write(&window, at, 8);
    }
    assert_eq!(faults.take(), (0, 0), "memory is writable");
    assert_eq!(resident_kb(&window), 4 * PAGE_SIZE / 1024);
}

#[test]
fn a_writer_never_changes_the_place_called_nothing() {
    let mmu = real();
    let window = reserve(&mmu, 1);
    // A thread that touches too early touches again.
    let faults = serve(&window, |_, _| std::thread::yield_now());
    let stop = AtomicBool::new(false);
    let mut protected = 0;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                write(&window, 0, 1);
            }
        });
        let _end = Finally(|| {
            stop.store(true, Ordering::Relaxed);
            // Lets the writer come to its end.
            mmu.zap(from_ref(&window.range()));
            mmu.fill(&window, window.addr, PAGE_SIZE).unwrap();
        });
        for round in 0..5000 {
            if mmu.zero_page(&window, window.addr).unwrap() == Zeroed::Nothing {
                for _ in 0..3 {
                    assert_eq!(read(&window, 0), 0, "round {round}");
                    std::thread::yield_now();
                }
                // The writer gets there once, however few processors there are.
                while protected == 0 {
                    std::thread::yield_now();
                    protected = faults.take().1;
                }
            }
            mmu.make_writable(&window, window.addr).unwrap();
            if round % 16 == 0 {
                // The writer gets there.
                while read(&window, 0) == 0 {
                    std::thread::yield_now();
                }
            }
            mmu.zap(from_ref(&window.range()));
        }
    });
    assert!(protected > 0);
}

#[test]
fn where_pages_cannot_be_asked_about_zeros_are_memory() {
    let mmu = without(|_| (), false);
    assert!(mmu.can_protect());
    let window = reserve(&mmu, 4);
    let faults = serve(&window, |_, _| ());
    assert_eq!(mmu.zero_page(&window, window.addr), Ok(Zeroed::Memory));
    write(&window, 0, 1);
    assert_eq!(faults.take(), (0, 0));
    assert_eq!(resident_kb(&window), PAGE_SIZE / 1024);
}
