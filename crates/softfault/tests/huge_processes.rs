//! Huge memory in several processes: by fork, by a descriptor, by an ordinary user, and with shared page tables.

mod child;
mod huge_scene;
mod nobody;

use child::{forked, succeeds};
use huge_scene::{PAGE, Pool, each, memory, touch, unreserved, write};
use softfault::{HugeBacking, HugeMap, HugeMemory, HugeStats};
use softfault_oracle::Finally;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::Stdio;

#[track_caller]
fn assert_well(status: i32) {
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "status {status:#x}"
    );
}

/// Userfaultfds that this process has open.
fn userfaultfds() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let uffd = |link: &std::path::PathBuf| link.to_string_lossy().contains("[userfaultfd]");
    links.filter(uffd).count()
}

#[test]
fn a_child_of_fork_goes_on_with_it() {
    let test = "a_child_of_fork_goes_on_with_it";
    if child::scenario().is_none() {
        return succeeds(test, "alone");
    }
    each(8, |backing| {
        let memory = memory(backing, 8);
        let map = memory.map().unwrap();
        write(&map, 0, 1);
        assert_eq!(userfaultfds(), 1);
        let status = forked(|| {
            assert_eq!(userfaultfds(), 0, "the parent's acts on the parent");
            assert_eq!(HugeStats::now().faults, 0);
            // A page that is there, missing pages, and a map of its own.
            assert_eq!(touch(&map, 0), 1);
            write(&map, 0, 2);
            write(&map, PAGE, 3);
            map.write_at(&[4], 2 * PAGE).unwrap();
            let own = memory.map().unwrap();
            assert_eq!(userfaultfds(), 1);
            assert_eq!((touch(&own, 0), touch(&own, PAGE)), (2, 3));
            assert_eq!(own.stats().faults, 0);
            write(&own, 3 * PAGE, 5);
            assert_eq!((own.stats().faults, own.stats().pages), (1, 1));
            // Dropping the inherited map leaves the parent's as it is.
            drop(own);
            0
        });
        assert_well(status);
        let seen = [0, 1, 2, 3].map(|page| touch(&map, page * PAGE));
        assert_eq!(seen, [2, 3, 4, 5]);
        let before = map.stats().faults;
        write(&map, 4 * PAGE, 6);
        assert_eq!(
            map.stats().faults,
            before + 1,
            "the parent's is served as before"
        );
    });
}

#[test]
fn a_child_drops_inherited_maps() {
    let memory = memory(HugeBacking::BasePages, 2);
    let maps: Vec<_> = (0..3).map(|_| memory.map().unwrap()).collect();
    let kept = memory.map().unwrap();
    write(&kept, 0, 1);
    let mut maps = Some(maps);
    let status = forked(|| {
        drop(maps.take());
        let more: Vec<_> = (0..5).map(|_| memory.map().unwrap()).collect();
        write(&more[4], PAGE, 2);
        i32::from(touch(&kept, 0) != 1 || more[4].stats().faults != 1)
    });
    assert_well(status);
    for map in maps.iter().flatten() {
        assert_eq!((touch(map, 0), touch(map, PAGE)), (1, 2));
    }
}

#[test]
fn a_fork_beside_threads_that_touch() {
    let memory = memory(HugeBacking::BasePages, 16);
    let map = memory.map().unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    let forks = || {
        for _ in 0..20 {
            let status = forked(|| {
                // A map that another thread had a fault in when this process began.
                let own = memory.map().unwrap();
                own.populate(..).unwrap();
                write(&map, 5, 1);
                0
            });
            assert_well(status);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed would do: only ends the loop.
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                for page in 0..16 {
                    touch(&map, page * PAGE + 7);
                }
                memory.punch_hole(0..8 * PAGE as u64).unwrap();
            }
        });
        let _over = Finally(|| over.store(true, std::sync::atomic::Ordering::SeqCst));
        forks();
    });
    assert_eq!(map.stats().failed, 0);
}

/// The child would have the parent's descriptor, by which it acts on the parent.
#[test]
fn a_fork_beside_the_first_map() {
    let test = "a_fork_beside_the_first_map";
    if child::scenario().is_none() {
        return succeeds(test, "alone");
    }
    let memory = memory(HugeBacking::BasePages, 1);
    // From here on forks are prepared for.
    drop(memory.map().unwrap());
    for round in 0..600 {
        let status = forked(|| {
            let begun = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                let map = scope.spawn(|| {
                    begun.wait();
                    memory.map().unwrap()
                });
                begun.wait();
                let begin = std::time::Instant::now();
                while begin.elapsed().as_micros() < 20 + round % 60 {}
                let status = forked(|| userfaultfds() as i32);
                drop(map.join().unwrap());
                assert_well(status);
            });
            0
        });
        assert_well(status);
    }
}

/// Starts `test` again as `name` with the memory as its standard input.
#[track_caller]
fn hand_over(test: &str, name: &str, memory: &HugeMemory) {
    let mut command = child::command(test, name);
    let fd = memory.as_fd().try_clone_to_owned().unwrap();
    child::succeeds_with(command.stdin(Stdio::from(fd)), name);
}

fn handed() -> HugeMemory {
    // SAFETY: the parent's memory is standard input.
    let fd = unsafe { OwnedFd::from_raw_fd(libc::dup(0)) };
    HugeMemory::from_fd(fd).unwrap()
}

#[test]
fn another_program_gets_it_as_a_descriptor() {
    let test = "another_program_gets_it_as_a_descriptor";
    if child::scenario().is_some() {
        let memory = handed();
        let map = memory.map().unwrap();
        assert_eq!(touch(&map, PAGE), 1);
        write(&map, PAGE, 2);
        write(&map, 2 * PAGE, 3);
        assert_eq!((map.stats().faults, map.stats().pages), (1, 1));
        return;
    }
    each(4, |backing| {
        let memory = memory(backing, 4);
        let map = memory.map().unwrap();
        write(&map, PAGE, 1);
        hand_over(test, "another", &memory);
        assert_eq!((touch(&map, PAGE), touch(&map, 2 * PAGE)), (2, 3));
        // The pages that the other process got were not missing here.
        assert_eq!(map.stats().faults, 1);
    });
}

#[test]
fn an_ordinary_user_has_it_too() {
    each(4, |backing| {
        let status = forked(|| {
            nobody::become_nobody();
            let memory = memory(backing, 4);
            let map = memory.map().unwrap();
            assert!(map.is_managed());
            for page in 0..4 {
                write(&map, page * PAGE, page as u8);
            }
            assert_eq!(map.stats().faults, 4);
            memory.punch_hole(0..PAGE as u64).unwrap();
            memory.truncate(3 * PAGE as u64).unwrap();
            i32::from(map.populate(..).is_ok() || touch(&map, 2 * PAGE) != 2)
        });
        assert_well(status);
    });
}

/// Faults of this thread so far that the kernel served without I/O. Other tests' threads have theirs meanwhile.
fn minor_faults() -> i64 {
    // SAFETY: a structure of zeros is valid, and the call fills it.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage.ru_minflt
    }
}

/// Faults of touching each page of a map.
fn faults_of_touching(map: &HugeMap) -> i64 {
    let before = minor_faults();
    for at in (0..map.len()).step_by(PAGE) {
        write(map, at, 1);
    }
    minor_faults() - before
}

#[test]
fn two_processes_have_one_page_table() {
    const PAGES: usize = 512;
    let Some(_pool) = Pool::with(PAGES as u64) else {
        return;
    };
    let memory = memory(HugeBacking::Hugetlb, PAGES);
    let map = memory.map().unwrap();
    let first = faults_of_touching(&map);
    assert!(
        first >= PAGES as i64,
        "{first}: each page has to be mapped once"
    );
    let status = forked(|| {
        let own = memory.map().unwrap();
        let second = faults_of_touching(&own);
        // A map without reservation is none of those that are alike.
        let other = faults_of_touching(&unreserved(&memory));
        println!("faults of {PAGES} pages: {first}, the second process {second}, unlike {other}");
        assert!(second < 16, "{second} faults: its page table is its own");
        assert!(
            other >= PAGES as i64,
            "{other}: the events that this test counts are no faults"
        );
        0
    });
    assert_well(status);
}

/// It is unlike the maps that a child makes, whose page tables it could not keep.
#[test]
fn a_child_keeps_the_page_tables_of_its_own_maps() {
    const PAGES: usize = 512;
    let Some(_pool) = Pool::with(PAGES as u64) else {
        return;
    };
    let memory = memory(HugeBacking::Hugetlb, PAGES);
    // Nothing of it is touched: no page table is the parent's.
    let mut map = Some(memory.map().unwrap());
    let status = forked(|| {
        drop(map.take());
        let first = faults_of_touching(&memory.map().unwrap());
        let second = faults_of_touching(&memory.map().unwrap());
        assert!(
            first >= PAGES as i64 && second < 16,
            "{first}, then {second} faults"
        );
        0
    });
    assert_well(status);
}

#[test]
fn the_next_map_finds_the_pages_of_the_last() {
    const PAGES: usize = 512;
    let Some(_pool) = Pool::with(PAGES as u64) else {
        return;
    };
    let memory = memory(HugeBacking::Hugetlb, PAGES);
    let first = faults_of_touching(&memory.map().unwrap());
    let second = faults_of_touching(&memory.map().unwrap());
    // The first is gone, and its page table is not.
    assert!(
        first >= PAGES as i64 && second < 16,
        "{first}, then {second} faults"
    );
    // Pages that are given back are in no table that was kept, and zeros when they are touched again.
    memory
        .punch_hole(0..PAGES as u64 * memory.page_size().bytes() as u64)
        .unwrap();
    assert_eq!(memory.resident_bytes().unwrap(), 0);
    let map = memory.map().unwrap();
    assert_eq!(touch(&map, 0), 0);
    assert!(faults_of_touching(&map) >= PAGES as i64 - 1);
    drop(map);
    memory.truncate(0).unwrap();
    assert_eq!(memory.resident_bytes().unwrap(), 0);
}
