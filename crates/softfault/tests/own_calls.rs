//! A change that a program makes to a map by system calls of its own ends with the map, also where the next one gets its window.

mod child;
mod files;

use child::{assert_exit, forked};
use files::{byte_at, engine, made_file};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const PAGE: usize = 4096;
const BUDGET: usize = 16 << 20;
const LEN: usize = 1 << 20;

/// One test at a time: windows that are kept are the process's, and a test of another thread would take this one's.
static KEPT_WINDOWS: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    KEPT_WINDOWS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes all access to a map's first pages away.
fn guard(bytes: &[u8], pages: usize) {
    let at = bytes.as_ptr().cast_mut().cast();
    // SAFETY: pages of a map, which are not used any more.
    let answer = unsafe { libc::mprotect(at, pages * PAGE, libc::PROT_NONE) };
    assert_eq!(answer, 0);
}

/// Failed before: SIGSEGV.
#[test]
fn a_guard_page_goes_with_its_map() {
    let _alone = alone();
    let engine = engine(BUDGET);
    let map = engine.map_anon(LEN).unwrap();
    let at = map.as_ptr();
    guard(&map, 1);
    drop(map);
    let mut map = engine.map_anon(LEN).unwrap();
    assert_eq!(map.as_ptr(), at, "the window of the one before");
    map[0] = 1;
    assert_eq!(map[0], 1);
}

/// Failed before: the child found zeros in place of data.
#[test]
fn what_a_child_gets_goes_with_its_map() {
    let _alone = alone();
    let engine = engine(BUDGET);
    let map = engine.map_anon(LEN).unwrap();
    let at = map.as_ptr().cast_mut();
    // SAFETY: pages of a map; changes no byte of this process.
    let answer = unsafe { libc::madvise(at.cast(), LEN, libc::MADV_WIPEONFORK) };
    assert_eq!(answer, 0);
    drop(map);
    let mut map = engine.map_anon(LEN).unwrap();
    assert_eq!(map.as_ptr(), at, "the window of the one before");
    map.fill(7);
    let status = forked(|| i32::from(map.iter().any(|&byte| byte != 7)));
    assert_exit(status, 0);
}

/// A window of its own, and a part of one that small files share. Failed before: SIGSEGV.
#[test]
fn a_file_that_is_mapped_again_can_be_read() {
    let _alone = alone();
    for len in [4 << 20, 50 * PAGE] {
        let file = made_file("renewed", len);
        // A tick of the clock of its stamps: before, a window of it is not found again.
        std::thread::sleep(Duration::from_millis(50));
        let engine = engine(BUDGET);
        let map = files::map(&engine, &file);
        assert_eq!(map[0], byte_at(0));
        let at = map.as_ptr();
        guard(&map, len / PAGE);
        drop(map);
        let map = files::map(&engine, &file);
        assert_eq!(map.as_ptr(), at, "the window of the one before");
        for at in (0..len).step_by(PAGE) {
            files::check(&map, at);
        }
    }
}
