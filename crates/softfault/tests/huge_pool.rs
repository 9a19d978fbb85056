//! Huge memory and the machine's pool: reserved when it is mapped, and errors as values when it is not.

mod child;
mod huge_scene;
mod proc;

use child::dies_of;
use huge_scene::{PAGE, Pool, available, figure, memory, touch, unreserved, write};
use softfault::{FaultError, HugeBacking, HugeMap, HugeMemory, HugeSize, MmapOptions};
use std::io::ErrorKind;

#[test]
fn a_map_without_room_in_the_pool_is_refused_with_the_remedy() {
    let Some(_pool) = Pool::with(4) else { return };
    let (total, available) = (figure("nr_hugepages").unwrap(), available());
    let wanted = available + 5;
    let memory = memory(HugeBacking::Hugetlb, wanted as usize);
    let error = memory.map().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let text = error.to_string();
    println!("{text}");
    let overcommit = figure("nr_overcommit_hugepages").unwrap_or(0);
    if overcommit == 0 {
        let enough = total + 5;
        assert!(
            text.contains(&format!("{wanted} huge pages of 2 MiB")),
            "{text}"
        );
        assert!(
            text.contains(&format!("{available} of the pool's {total}")),
            "{text}"
        );
        assert!(text.contains(&format!("nr_hugepages={enough}")), "{text}");
    }
    assert!(!text.contains('\n'), "{text}");
    // Nothing was taken, and without a reservation it maps.
    assert_eq!(huge_scene::available(), available);
    let map = unreserved(&memory);
    write(&map, 0, 1);
}

/// It needs no page of the pool.
#[test]
fn a_shortage_of_address_space_is_named() {
    let test = "a_shortage_of_address_space_is_named";
    if child::scenario().is_none() {
        return child::succeeds(test, "alone");
    }
    let builder = HugeMemory::builder().backing(HugeBacking::Hugetlb);
    let memory = match builder.page_size(HugeSize::TwoMiB).create(1 << 30) {
        Ok(memory) => memory,
        Err(error) => return softfault_skip::skipped("hugetlb", error),
    };
    // What the first map of a process takes for itself.
    let _first = unreserved(&memory);
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let used = statm.split(' ').next().unwrap();
    let limit = used.parse::<u64>().unwrap() * 4096 + (256 << 20);
    let limit = libc::rlimit {
        rlim_cur: limit,
        rlim_max: limit,
    };
    // SAFETY: the limit is there for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    let error = memory.map().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let text = error.to_string();
    assert!(
        text.contains("ulimit -v") && !text.contains("reserve"),
        "{text}"
    );
}

#[test]
fn reserved_pages_are_there_although_the_pool_is_empty() {
    let Some(pool) = Pool::with(8) else { return };
    let memory = memory(HugeBacking::Hugetlb, 4);
    let before = available();
    let map = memory.map().unwrap();
    assert_eq!(available(), before - 4);
    let _hog = pool.emptied();
    for page in 0..4 {
        write(&map, page * PAGE, 9);
    }
    assert_eq!((map.stats().pages, map.stats().pool_empty), (4, 0));
    // A second map of the same pages needs no more, and reserved pages stay with the memory.
    drop(map);
    let again = memory.map().unwrap();
    assert_eq!(touch(&again, 3 * PAGE), 9);
}

/// Anonymous memory of huge pages is mapped, protected and unmapped by whole ones, however long the map is.
#[test]
fn a_map_that_ends_within_a_huge_page_gives_it_back() {
    let Some(_pool) = Pool::with(3) else { return };
    let before = available();
    for len in [1, 4096, PAGE + 1] {
        let mut options = MmapOptions::new();
        let mut map = options.len(len).huge(Some(21)).map_anon().unwrap();
        assert_eq!(map.len(), len);
        map[len - 1] = 7;
        let map = map.make_read_only().unwrap();
        assert_eq!(map[len - 1], 7);
        let mut map = map.make_mut().unwrap();
        map[len - 1] = 8;
        drop(map);
        assert_eq!(available(), before, "{len}");
    }
}

/// Of a length for which the tables of a map are kept.
#[test]
fn a_page_that_was_given_back_is_not_reserved_again_when_its_map_goes() {
    const PAGES: usize = (1 << 30) / PAGE;
    let Some(_pool) = Pool::with(PAGES as u64) else {
        return;
    };
    let memory = memory(HugeBacking::Hugetlb, PAGES);
    let map = memory.map().unwrap();
    write(&map, 0, 1);
    memory.punch_hole(0..PAGE as u64).unwrap();
    let given_back = available();
    drop(map);
    assert_eq!(available(), given_back);
}

#[test]
fn an_empty_pool_is_an_error_as_a_value() {
    let Some(pool) = Pool::with(8) else { return };
    let memory = memory(HugeBacking::Hugetlb, 4);
    let map = unreserved(&memory);
    write(&map, 0, 5);
    let hog = pool.emptied();
    assert_eq!(map.populate(..), Err(FaultError::PoolEmpty));
    assert_eq!(map.write_at(&[1], PAGE), Err(FaultError::PoolEmpty));
    assert_eq!(map.read_at(&mut [0], PAGE), Err(FaultError::PoolEmpty));
    assert_eq!(touch(&map, 0), 5);
    assert_eq!(map.stats().pool_empty, 3);
    let text = FaultError::PoolEmpty.to_string();
    assert!(text.contains("sysctl vm.nr_hugepages=N"), "{text}");
    drop(hog);
    map.populate(..).unwrap();
    assert_eq!((touch(&map, PAGE), touch(&map, 0)), (0, 5));
}

#[test]
fn a_touch_with_an_empty_pool_dies_of_sigbus() {
    let test = "a_touch_with_an_empty_pool_dies_of_sigbus";
    if child::scenario().is_none() {
        let Some(_pool) = Pool::with(4) else { return };
        return dies_of(libc::SIGBUS, test, "touch");
    }
    // The parent has the lock.
    let hog = HugeMemory::builder().backing(HugeBacking::Hugetlb);
    let hog = hog.create(available() * PAGE as u64).unwrap();
    let _hog = hog.map().unwrap();
    let memory = memory(HugeBacking::Hugetlb, 1);
    let map = unreserved(&memory);
    touch(&map, 0);
}

#[test]
fn pages_given_back_go_to_the_pool() {
    let Some(_pool) = Pool::with(8) else { return };
    let before = available();
    let memory = memory(HugeBacking::Hugetlb, 8);
    let map = memory.map().unwrap();
    map.populate(..).unwrap();
    assert_eq!(available(), before - 8);
    memory.punch_hole(0..2 * PAGE as u64).unwrap();
    assert_eq!(available(), before - 6);
    memory.truncate(4 * PAGE as u64).unwrap();
    assert_eq!(available(), before - 2);
    drop(map);
    assert_eq!(available(), before - 2);
    drop(memory);
    assert_eq!(available(), before, "a page or a reservation was lost");
}

/// Two maps of the same memory, whose pages come in while one of its threads gives some back. Reservations are looked at only where the
/// threads take turns: of a touch that meets a cut of its file Linux itself may count one too few. System calls alone did so in six of
/// 3,000 rounds of this kind (Linux 6.18).
#[test]
fn pages_are_right_after_all_kinds_of_ends() {
    let Some(_pool) = Pool::with(16) else { return };
    let (free, reserved) = (figure("free_hugepages"), figure("resv_hugepages"));
    for takes_turns in [true, false] {
        for round in 0..20 {
            let memory = memory(HugeBacking::Hugetlb, 8);
            let maps = [memory.map().unwrap(), memory.map().unwrap()];
            let bring_in = |number: usize, map: &HugeMap| {
                for page in 0..8 {
                    // The other may have cut it off.
                    let _ = map.populate(page * PAGE..page * PAGE + 1);
                    if number == 1 && page == round % 8 {
                        memory.punch_hole(0..PAGE as u64).unwrap();
                        memory.truncate(4 * PAGE as u64).unwrap();
                        memory.truncate(8 * PAGE as u64).unwrap();
                    }
                }
            };
            std::thread::scope(|scope| {
                for (number, map) in maps.iter().enumerate() {
                    let bring_in = &bring_in;
                    let thread = scope.spawn(move || bring_in(number, map));
                    if takes_turns {
                        thread.join().unwrap();
                    }
                }
            });
            assert!(memory.resident_bytes().unwrap() <= 8 * PAGE as u64);
        }
        if takes_turns {
            assert_eq!(figure("resv_hugepages"), reserved);
        }
    }
    assert_eq!(figure("free_hugepages"), free);
}

#[test]
fn without_a_pool_it_is_made_of_ordinary_memory() {
    let pool = Pool::locked();
    let has_any = |name| figure(name).is_some_and(|pages| pages > 0);
    if !has_any("nr_hugepages") && !has_any("nr_overcommit_hugepages") {
        let memory = HugeMemory::builder().create(4 * PAGE as u64).unwrap();
        println!("without a pool: {}", memory.backing());
        assert_ne!(memory.backing(), HugeBacking::Hugetlb);
        let map = memory.map().unwrap();
        write(&map, PAGE, 3);
        assert_eq!(touch(&map, PAGE), 3);
        assert_eq!(memory.resident_bytes().unwrap(), PAGE as u64);
        // A pool that may get pages later can be asked for, and reserves none now.
        let builder = HugeMemory::builder().backing(HugeBacking::Hugetlb);
        if let Ok(memory) = builder.create(4 * PAGE as u64) {
            assert_eq!(memory.map().unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
    } else {
        softfault_skip::skipped(
            "hugetlb",
            "this machine has a pool, which is not taken away",
        );
    }
    drop(pool);
    let Some(_pool) = Pool::with(4) else { return };
    let memory = HugeMemory::builder().create(4 * PAGE as u64).unwrap();
    assert_eq!(memory.backing(), HugeBacking::Hugetlb);
}

#[test]
fn transparent_pages_are_huge_where_the_machine_gives_any() {
    const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let _pool = Pool::locked();
    let before = std::fs::read_to_string(SETTING).unwrap_or_default();
    let _back = softfault_oracle::Finally(|| {
        let word = before
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        if let Some((word, _)) = word {
            let _ = std::fs::write(SETTING, word);
        }
    });
    let _ = std::fs::write(SETTING, "advise");
    let now = std::fs::read_to_string(SETTING).unwrap_or_default();
    if now.contains("[advise]") {
        let memory = memory(HugeBacking::TransparentHuge, 4);
        let map = memory.map().unwrap();
        write(&map, PAGE + 5, 1);
        assert_eq!(map.stats().faults, 1);
        let huge = mapped_huge(map.as_ptr() as usize);
        assert_eq!(touch(&map, PAGE + 5), 1, "whatever they are in");
        assert!(huge == 0 || huge == 2048, "{huge} KiB");
        if huge == 0 {
            softfault_skip::skipped("kernel", "there is no huge page at the moment");
        }
    } else {
        softfault_skip::skipped(
            "root",
            "transparent huge pages for shared memory cannot be asked for here",
        );
    }
}

/// KiB of a mapping of shared memory that are huge entries of page tables.
fn mapped_huge(start: usize) -> usize {
    let mapping = proc::mapping(start).unwrap();
    let field = mapping.field("ShmemPmdMapped");
    field.map_or(0, |field| field.trim_end_matches(" kB").parse().unwrap())
}

#[test]
fn pages_of_a_gigabyte_come_from_a_pool_or_are_smaller() {
    let memory = HugeMemory::builder().page_size(HugeSize::OneGiB);
    let memory = memory.create(1 << 30).unwrap();
    println!("{}: pages of {}", memory.backing(), memory.page_size());
    match memory.backing() {
        HugeBacking::Hugetlb => assert_eq!(memory.page_size(), HugeSize::OneGiB),
        _ => {
            assert_eq!(memory.page_size(), HugeSize::TwoMiB);
            let map = memory.map().unwrap();
            write(&map, (1 << 30) - 1, 1);
            assert_eq!(memory.resident_bytes().unwrap(), PAGE as u64);
        }
    }
}
