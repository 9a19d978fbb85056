//! The parent's handles in a child.

use crate::child::{assert_exit, forked};
use crate::scene::{BUDGET, PAGE, PAGES, check, check_scene, engine, scene, write};
use softfault::{Advice, Engine, FaultError, Mmap};
use std::fs::File;

fn this_binary() -> File {
    File::open(std::env::current_exe().unwrap()).unwrap()
}

#[test]
fn the_engine_and_its_maps_go_on() {
    let engine = engine();
    let mut map = scene(&engine);
    let mut small = engine.map_anon(10 * PAGE).unwrap();
    write(&mut small, 3, 1);
    let status = forked(|| {
        assert!(map.is_managed() && map.resident_bytes() > 0);
        assert_eq!(engine.stats().budget_bytes, BUDGET as u64);
        assert!(engine.stats().resident_bytes >= map.resident_bytes() as u64 / 4 * 3);
        map.advise(Advice::Random).unwrap();
        map.advise_range(Advice::Sequential, PAGE, 5 * PAGE)
            .unwrap();
        map.populate(..50 * PAGE).unwrap();
        check(&small, 3, 1, "child");
        // SAFETY: the child's own copy, used no more: it ends with _exit.
        drop(unsafe { core::ptr::read(&small) });
        // Its memory is given back.
        let before = engine.stats().resident_bytes;
        // SAFETY: as above.
        drop(unsafe { core::ptr::read(&map) });
        assert!(engine.stats().resident_bytes < before / 2);
        let mut other = engine.map_anon(PAGES * PAGE).unwrap();
        (0..PAGES).for_each(|page| write(&mut other, page, 9));
        (0..PAGES).for_each(|page| check(&other, page, 9, "new"));
        engine.set_memory(2 * BUDGET).unwrap();
        assert_eq!(engine.stats().budget_bytes, 2 * BUDGET as u64);
        // A grandchild has the maps that were made in the child.
        let status = forked(|| {
            (0..PAGES).for_each(|page| check(&other, page, 9, "grandchild"));
            0
        });
        assert_exit(status, 0);
        // SAFETY: as above.
        drop(unsafe { core::ptr::read(&engine) });
        0
    });
    assert_exit(status, 0);
    assert_eq!(engine.stats().budget_bytes, BUDGET as u64);
    check_scene(&map, "parent");
    write(&mut map, 0, 4);
    check(&small, 3, 1, "parent");
}

#[test]
fn an_engine_without_memory_and_one_of_the_childs_own() {
    let engine = engine();
    let file = this_binary();
    let status = forked(|| {
        // Made when it is wanted.
        let mut map = engine.map_anon(PAGES * PAGE).unwrap();
        (0..PAGES).for_each(|page| write(&mut map, page, 1));
        (0..PAGES).for_each(|page| check(&map, page, 1, "late"));
        // SAFETY: nobody writes to the file.
        let refused = unsafe { engine.map(&file) }.unwrap_err();
        assert!(refused.to_string().contains("parent"), "{refused}");
        let own = Engine::builder()
            .allow_kernel_maps(false)
            .memory(BUDGET)
            .build()
            .unwrap();
        // SAFETY: as above.
        let of_file: Mmap = unsafe { own.map(&file) }.unwrap();
        assert_eq!(&of_file[..4], b"\x7fELF");
        assert_eq!(of_file.pin(..4).unwrap()[..], *b"\x7fELF");
        let mut anon = own.map_anon(10 * PAGE).unwrap();
        write(&mut anon, 3, 2);
        let status = forked(|| {
            check(&anon, 3, 2, "grandchild");
            assert_eq!(of_file.pin(..4).unwrap()[..], *b"\x7fELF");
            0
        });
        assert_exit(status, 0);
        assert_eq!(&of_file[..4], b"\x7fELF");
        0
    });
    assert_exit(status, 0);
}

#[test]
fn a_part_that_was_unmapped_stays_so() {
    let engine = engine();
    let map = scene(&engine);
    // SAFETY: not looked at any more.
    unsafe { map.give_up_part(PAGE * 100..PAGE * 200) }.unwrap();
    let status = forked(|| {
        assert_eq!(
            map.populate(PAGE * 150..PAGE * 151).unwrap_err(),
            FaultError::OutOfRange
        );
        (200..PAGES)
            .filter(|page| page % 4 != 3)
            .for_each(|page| check(&map, page, 1, "child"));
        0
    });
    assert_exit(status, 0);
}
