//! Private maps of files, locked pages, moved maps: in a child.

use crate::child::{assert_exit, forked};
use crate::scene::{BUDGET, PAGE, PAGES, check, engine, scene, write};
use softfault::{Engine, MmapMut, MmapOptions, RemapOptions};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A file four times the budget, of which each page says its number.
fn numbered(name: &str) -> File {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut bytes = vec![0; PAGES * PAGE];
    (0..PAGES).for_each(|page| write(&mut bytes, page, 1));
    std::fs::write(&path, bytes).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

fn copy(engine: &Engine, file: &File) -> MmapMut {
    // SAFETY: only these tests write to the file, at known times.
    unsafe { MmapOptions::new().map_copy_in(engine, file) }.unwrap()
}

#[test]
fn a_private_map_of_a_file_goes_on() {
    let engine = engine();
    let file = numbered("fork-private-file");
    let mut map = copy(&engine, &file);
    for page in (0..PAGES).filter(|page| page % 3 == 0) {
        write(&mut map, page, 2);
    }
    let expect = |map: &[u8], who: &str| {
        (0..PAGES).for_each(|page| check(map, page, if page % 3 == 0 { 2 } else { 1 }, who));
    };
    let status = forked(|| {
        expect(&map, "child");
        (0..PAGES).for_each(|page| write(&mut map, page, 3));
        (0..PAGES).for_each(|page| check(&map, page, 3, "child"));
        let status = forked(|| {
            (0..PAGES).for_each(|page| check(&map, page, 3, "grandchild"));
            // Another of the same file, over the inherited engine.
            let other = copy(&engine, &file);
            (0..PAGES).for_each(|page| check(&other, page, 1, "new"));
            0
        });
        assert_exit(status, 0);
        0
    });
    assert_exit(status, 0);
    expect(&map, "parent");
    let mut first = [0; 16];
    file.read_exact_at(&mut first, 0).unwrap();
    assert_eq!(first[..8], crate::scene::word(0, 1).to_ne_bytes());
}

#[test]
fn a_read_only_map_stays_so_and_may_be_made_writable() {
    let engine = engine();
    let map = scene(&engine).make_read_only().unwrap();
    let status = forked(|| {
        // SAFETY: the child's own copy; the parent's handle is not used here.
        let map = unsafe { core::ptr::read(&map) };
        crate::scene::check_scene(&map, "child");
        assert_eq!(map.pin(..8).unwrap()[..], map[..8]);
        let status = forked(|| {
            // SAFETY: within the map; the write must end the child.
            unsafe { map.as_ptr().cast_mut().write_volatile(1) };
            0
        });
        crate::scene::assert_segv(status);
        let mut map = map.make_mut().unwrap();
        (0..PAGES).for_each(|page| write(&mut map, page, 2));
        (0..PAGES).for_each(|page| check(&map, page, 2, "child"));
        0
    });
    assert_exit(status, 0);
    crate::scene::check_scene(&map, "parent");
}

#[test]
fn nothing_stays_locked_in_a_child() {
    let engine = engine();
    let mut map = engine.map_anon(BUDGET / 4).unwrap();
    let pages = BUDGET / 4 / PAGE;
    (0..pages).for_each(|page| write(&mut map, page, 1));
    map.lock().unwrap();
    let status = forked(|| {
        let others = scene(&engine);
        (0..pages).for_each(|page| check(&map, page, 1, "child"));
        // Some went while the others came: they are not kept.
        touch_all(&others);
        assert!(map.resident_bytes() < BUDGET / 4);
        map.unlock().unwrap();
        map.lock().unwrap();
        assert_eq!(map.resident_bytes(), BUDGET / 4);
        touch_all(&others);
        assert_eq!(map.resident_bytes(), BUDGET / 4);
        // SAFETY: the child's own copy, used no more.
        drop(unsafe { core::ptr::read(&map) });
        0
    });
    assert_exit(status, 0);
    assert_eq!(map.resident_bytes(), BUDGET / 4);
    map.unlock().unwrap();
}

#[test]
fn a_map_grows_and_shrinks_in_a_child() {
    let engine = engine();
    let mut map = scene(&engine);
    let status = forked(|| {
        // SAFETY: nobody has a reference into it.
        unsafe { map.remap(PAGES * PAGE / 2, RemapOptions::new()) }.unwrap();
        // SAFETY: as above.
        unsafe { map.remap(2 * PAGES * PAGE, RemapOptions::new().may_move(true)) }.unwrap();
        for page in (0..PAGES / 2).filter(|page| page % 4 != 3) {
            check(&map, page, 1, "child");
        }
        assert!(
            map[PAGES * PAGE / 2..]
                .iter()
                .step_by(PAGE)
                .all(|&byte| byte == 0)
        );
        // A grandchild finds it where it has moved to.
        let status = forked(|| {
            for page in (0..PAGES / 2).filter(|page| page % 4 != 3).rev() {
                check(&map, page, 1, "grandchild");
            }
            0
        });
        assert_exit(status, 0);
        0
    });
    assert_exit(status, 0);
    crate::scene::check_scene(&map, "parent");
}

fn touch_all(map: &[u8]) {
    let bytes = map.iter().step_by(PAGE);
    std::hint::black_box(bytes.fold(0, |all, &byte| all ^ byte));
}
