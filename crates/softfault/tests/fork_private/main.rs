//! Private memory in children of fork.

#[path = "../child/mod.rs"]
mod child;
mod ends;
mod files;
mod handles;
mod load;
mod raw;
mod scene;

use child::{assert_exit, forked};
use scene::{BUDGET, PAGE, PAGES, check, check_scene, engine, engine_with, scene, write};
use softfault::{Compression, Engine};

#[test]
fn a_child_has_all_of_it_and_its_writes_are_its_own() {
    let engine = engine();
    let mut map = scene(&engine);
    let status = forked(|| {
        check_scene(&map, "child");
        for page in 0..PAGES {
            write(&mut map, page, 2);
        }
        for page in (0..PAGES).rev() {
            check(&map, page, 2, "child");
        }
        let stats = engine.stats();
        assert!(stats.peak_bytes <= BUDGET as u64, "{}", stats.peak_bytes);
        let swap = stats.swap.unwrap();
        assert!(swap.pages_out > 0 && swap.pages_in > 0, "{swap:?}");
        0
    });
    assert_exit(status, 0);
    check_scene(&map, "parent");
    for page in 0..PAGES {
        write(&mut map, page, 3);
    }
    for page in 0..PAGES {
        check(&map, page, 3, "parent");
    }
}

#[test]
fn a_child_does_not_see_later_writes_of_the_parent() {
    let engine = engine();
    let mut map = scene(&engine);
    let child = child::start(|| {
        for _ in 0..3 {
            check_scene(&map, "child");
        }
        0
    });
    for round in 2..5 {
        for page in 0..PAGES {
            write(&mut map, page, round);
        }
    }
    assert_exit(child::wait(child), 0);
    for page in 0..PAGES {
        check(&map, page, 4, "parent");
    }
}

#[test]
fn grandchildren_have_the_memory_of_each_ancestor() {
    let engine = engine();
    let mut map = scene(&engine);
    let status = forked(|| {
        // Half is the child's own, most of it evicted again.
        for page in (0..PAGES).filter(|page| page % 2 == 0) {
            write(&mut map, page, 2);
        }
        let expect = |map: &[u8], who: &str| {
            for page in 0..PAGES {
                match page % 4 {
                    0 | 2 => check(map, page, 2, who),
                    1 => check(map, page, 1, who),
                    _ => assert!(map[page * PAGE..][..PAGE].iter().all(|&byte| byte == 0)),
                }
            }
        };
        let status = forked(|| {
            expect(&map, "grandchild");
            for page in (0..PAGES).filter(|page| page % 4 == 1) {
                write(&mut map, page, 3);
            }
            let status = forked(|| {
                for page in (0..PAGES).filter(|page| page % 4 == 1).rev() {
                    check(&map, page, 3, "great-grandchild");
                }
                for page in (0..PAGES).filter(|page| page % 4 == 2) {
                    check(&map, page, 2, "great-grandchild");
                }
                0
            });
            assert_exit(status, 0);
            0
        });
        assert_exit(status, 0);
        expect(&map, "child");
        0
    });
    assert_exit(status, 0);
    check_scene(&map, "parent");
}

#[test]
fn compressed_swap_is_inherited_too() {
    let engine = engine_with(Compression::Lz4);
    let mut map = scene(&engine);
    let status = forked(|| {
        check_scene(&map, "child");
        for page in 0..PAGES {
            write(&mut map, page, 2);
        }
        let status = forked(|| {
            for page in 0..PAGES {
                check(&map, page, 2, "grandchild");
            }
            0
        });
        assert_exit(status, 0);
        0
    });
    assert_exit(status, 0);
    check_scene(&map, "parent");
}

#[test]
fn zeros_stay_free_and_clean_pages_are_dropped_in_a_child() {
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(BUDGET)
        .build()
        .unwrap();
    let map = engine.map_anon(PAGES * PAGE).unwrap();
    // More zeros than the budget, none of which costs anything.
    assert!(map.iter().step_by(PAGE).all(|&byte| byte == 0));
    let mut map = map;
    let status = forked(|| {
        assert!(map.iter().step_by(PAGE).all(|&byte| byte == 0));
        // Each write to one is seen, and paid for.
        for page in 0..100 {
            write(&mut map, page, 1);
        }
        let before = engine.stats().resident_bytes;
        for page in 100..200 {
            write(&mut map, page, 1);
        }
        let after = engine.stats().resident_bytes;
        assert!(after >= before + 100 * PAGE as u64, "{before} {after}");
        0
    });
    assert_exit(status, 0);
}

#[test]
fn several_engines_and_one_within_another() {
    let outer = engine();
    let inner = Engine::builder()
        .allow_kernel_maps(false)
        .memory(BUDGET / 2)
        .within(&outer)
        .swap(scene::swap())
        .build()
        .unwrap();
    let bare = Engine::builder()
        .allow_kernel_maps(false)
        .memory(BUDGET)
        .build()
        .unwrap();
    let map = scene(&outer);
    let mut within = inner.map_anon(BUDGET).unwrap();
    (0..BUDGET / PAGE).for_each(|page| write(&mut within, page, 5));
    let mut kept = bare.map_anon(BUDGET / 2).unwrap();
    (0..BUDGET / 2 / PAGE).for_each(|page| write(&mut kept, page, 6));
    let status = forked(|| {
        check_scene(&map, "child");
        (0..BUDGET / PAGE).for_each(|page| check(&within, page, 5, "within"));
        (0..BUDGET / 2 / PAGE).for_each(|page| check(&kept, page, 6, "kept"));
        (0..BUDGET / PAGE).for_each(|page| write(&mut within, page, 7));
        let (of_inner, of_outer) = (inner.stats(), outer.stats());
        assert!(of_inner.resident_bytes <= BUDGET as u64 / 2);
        assert!(of_outer.resident_bytes >= of_inner.resident_bytes);
        assert!(
            of_outer.peak_bytes <= BUDGET as u64,
            "{}",
            of_outer.peak_bytes
        );
        0
    });
    assert_exit(status, 0);
    (0..BUDGET / PAGE).for_each(|page| check(&within, page, 5, "parent"));
}
