//! Anonymous memory through userfaultfd.

mod child;
mod files;

use child::{forked, scenario};
use files::{check, made_file};
use softfault::{Advice, Engine, FaultError, MIN_MEMORY, MmapMut, MmapOptions};
use std::io;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

fn engine(megabytes: usize) -> Engine {
    files::engine(megabytes * MIB)
}

fn byte(seed: usize, at: usize) -> u8 {
    (at.wrapping_mul(0x9E37_79B9).wrapping_add(seed * 77) >> 7) as u8
}

#[test]
fn zeros_until_written_and_everything_comes_back() {
    let engine = engine(16);
    let before = engine.stats();
    let len = 4 * MIB + 100;
    let mut map = engine.map_anon(len).unwrap();
    assert_eq!(map.len(), len);
    assert!(map.is_managed());
    // The page that counts its pages, and an upper page table.
    let made = engine.stats().resident_bytes - before.resident_bytes;
    assert_eq!(made, 2 * PAGE as u64);
    assert!(map.iter().step_by(511).all(|&byte| byte == 0));
    for at in (0..len).step_by(1021) {
        map[at] = byte(1, at);
    }
    for at in 0..len {
        let expected = if at % 1021 == 0 { byte(1, at) } else { 0 };
        assert_eq!(map[at], expected, "{at}");
    }
    let pages = len.div_ceil(PAGE);
    assert_eq!(map.resident_bytes(), pages * PAGE);
    let full = engine.stats();
    // The last page was only read: a page of zeros, where the kernel says that it is one (PAGEMAP_SCAN, Linux 6.7), or memory.
    let pages = pages - usize::from(full.zero_pages > 0);
    assert_eq!(full.anonymous_faults + full.filled_ahead, pages as u64);
    // Pages, three page tables, and the pages that count them.
    let held = (full.resident_bytes - before.resident_bytes) as usize / PAGE;
    assert!((pages + 3..pages + 10).contains(&held), "{held} {pages}");
    drop(map);
    assert_eq!(engine.stats().resident_bytes, before.resident_bytes);
}

#[test]
fn a_sparse_map_costs_only_touched_pages() {
    let engine = engine(16);
    let before = engine.stats().resident_bytes;
    let mut map = engine.map_anon(1 << 40).unwrap();
    for touch in 0..100_usize {
        map[touch * 9_999_999_937] = touch as u8;
    }
    for touch in 0..100_usize {
        assert_eq!(map[touch * 9_999_999_937], touch as u8);
    }
    assert_eq!(map.resident_bytes(), 100 * PAGE);
    drop(map);
    assert_eq!(engine.stats().resident_bytes, before);
}

#[test]
fn memmap2s_names() {
    let mut map = MmapMut::map_anon(10_000).unwrap();
    map.as_mut()[9_999] = 7;
    map[..5].copy_from_slice(b"hello");
    assert_eq!(&map.as_ref()[..6], b"hello\0");
    assert_eq!(map[9_999], 7);
    map.advise(Advice::Sequential).unwrap();
    map.advise_range(Advice::Random, 4096, 5904).unwrap();
    assert!(map.advise_range(Advice::Random, 4096, 9000).is_err());
    assert!(format!("{map:?}").starts_with("MmapMut"));
    let populated = MmapOptions::new().len(MIB).populate().map_anon().unwrap();
    assert_eq!(populated.resident_bytes(), MIB);
    let mut empty = MmapMut::map_anon(0).unwrap();
    assert!(empty.is_empty() && empty.as_mut().is_empty());
    assert!(empty.populate(..).is_ok());
    let error = MmapMut::map_anon(usize::MAX).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_full_budget_is_a_value_of_populate() {
    let engine = files::engine(MIN_MEMORY);
    let before = engine.stats().resident_bytes;
    let mut map = engine.map_anon(2 * MIN_MEMORY).unwrap();
    let other = engine.map_anon(MIB).unwrap();
    assert_eq!(map.populate(..), Err(FaultError::NoMemory));
    assert_eq!(
        map.populate(0..usize::MAX).unwrap_err(),
        FaultError::OutOfRange
    );
    let resident = map.resident_bytes();
    assert!(resident > MIN_MEMORY / 4, "{resident}");
    let stats = engine.stats();
    assert!(stats.peak_bytes <= stats.budget_bytes, "{stats:?}");
    // Resident pages stay.
    map[..resident].fill(0x5A);
    assert!(map[..resident].iter().all(|&byte| byte == 0x5A));
    // Another has no room either, nor is one made; once the first has gone it has.
    let refused = engine.map_anon(MIB).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
    assert_eq!(other.populate(..), Err(FaultError::NoMemory));
    drop(map);
    assert_eq!(other.populate(..), Ok(()));
    drop(other);
    assert_eq!(engine.stats().resident_bytes, before);
}

#[test]
fn files_make_room_for_it_and_are_read_again() {
    let file = made_file("anon-beside", 12 * MIB);
    let engine = files::engine(MIN_MEMORY);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    let read_all = || (0..map.len()).step_by(PAGE).for_each(|at| check(&map, at));
    read_all();
    let mut anon = engine.map_anon(3 * MIB).unwrap();
    for at in (0..anon.len()).step_by(PAGE) {
        anon[at] = byte(3, at);
    }
    read_all();
    for at in (0..anon.len()).step_by(PAGE) {
        assert_eq!(anon[at], byte(3, at));
    }
    let stats = engine.stats();
    assert!(stats.peak_bytes <= stats.budget_bytes, "{stats:?}");
}

#[test]
fn threads_share_one_map_and_its_pages_are_filled_once() {
    let engine = engine(32);
    let mut map = engine.map_anon(12 * MIB).unwrap();
    let slices: Vec<_> = map.chunks_mut(12 * MIB / 8 + 1777).collect();
    std::thread::scope(|scope| {
        for (thread, slice) in slices.into_iter().enumerate() {
            scope.spawn(move || {
                for at in (0..slice.len()).step_by(509) {
                    assert_eq!(slice[at], 0);
                    slice[at] = byte(thread, at);
                }
            });
        }
    });
    for (thread, slice) in map.chunks(12 * MIB / 8 + 1777).enumerate() {
        for (at, &found) in slice.iter().enumerate() {
            let expected = if at % 509 == 0 { byte(thread, at) } else { 0 };
            assert_eq!(found, expected);
        }
    }
    let stats = engine.stats();
    assert_eq!(
        stats.anonymous_faults + stats.filled_ahead,
        12 * MIB as u64 / PAGE as u64
    );
}

#[test]
fn touches_that_run_on_are_filled_together() {
    let engine = Engine::builder().memory(32 << 20).build().unwrap();
    let mut map = engine.map_anon(12 * MIB).unwrap();
    map.fill(7);
    assert!(map.iter().all(|&byte| byte == 7));
    let (stats, pages) = (engine.stats(), (12 * MIB / PAGE) as u64);
    assert_eq!(stats.anonymous_faults + stats.filled_ahead, pages);
    assert!(stats.anonymous_faults * 8 < pages, "{stats:?}");
}

#[test]
fn a_full_budget_raises_sigbus_at_the_touch() {
    if scenario().is_none() {
        let name = "a_full_budget_raises_sigbus_at_the_touch";
        return child::dies_of(libc::SIGBUS, name, "touch");
    }
    let engine = files::engine(MIN_MEMORY);
    let mut map = engine.map_anon(2 * MIN_MEMORY).unwrap();
    map.fill(1);
    println!("all of it was written");
}

#[test]
fn populated_memory_may_be_handed_to_system_calls() {
    let file = made_file("anon-pread", 3 * PAGE);
    let engine = engine(16);
    let mut map = engine.map_anon(3 * PAGE).unwrap();
    use std::os::unix::fs::FileExt;
    let refused = file.read_exact_at(&mut map, 0).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
    map.populate(..).unwrap();
    file.read_exact_at(&mut map, 0).unwrap();
    assert!((0..map.len()).all(|at| map[at] == files::byte_at(at)));
}

#[test]
fn a_child_goes_on_with_inherited_memory() {
    let engine = engine(16);
    let mut map = engine.map_anon(MIB).unwrap();
    map[..MIB / 2].fill(9);
    let status = forked(|| {
        assert!(map[..MIB / 2].iter().all(|&byte| byte == 9));
        assert!(map[MIB / 2..].iter().all(|&byte| byte == 0));
        map.fill(7);
        map.populate(..).unwrap();
        let full = engine.stats().resident_bytes;
        drop(engine.map_anon(PAGE).unwrap());
        // SAFETY: the child's copy, used no more.
        drop(unsafe { core::ptr::read(&map) });
        assert!(full - engine.stats().resident_bytes >= MIB as u64);
        0
    });
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
    // Dropping it there gives nothing of the parent's back.
    assert!(map[..MIB / 2].iter().all(|&byte| byte == 9));
}

#[test]
fn a_part_that_is_unmapped_comes_back_to_the_budget() {
    let engine = engine(16);
    let before = engine.stats().resident_bytes;
    let mut map = engine.map_anon(6 * MIB).unwrap();
    map.fill(3);
    let full = engine.stats().resident_bytes;
    // SAFETY: only the rest is looked at.
    unsafe { map.give_up_part(MIB..5 * MIB) }.unwrap();
    // One page table went: that of the only range that is covered whole.
    let after = engine.stats().resident_bytes;
    assert_eq!(full - after, (4 * MIB + PAGE) as u64);
    assert_eq!(map.resident_bytes(), 2 * MIB);
    for at in [0, MIB - 1, 5 * MIB, 6 * MIB - 1] {
        // SAFETY: in the map.
        assert_eq!(unsafe { map.as_ptr().add(at).read_volatile() }, 3);
    }
    drop(map);
    assert_eq!(engine.stats().resident_bytes, before);
}
