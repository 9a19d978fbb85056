//! Huge memory whose maps the kernel serves: calls bring its pages in and give errors as values, as for maps that are
//! served here.

mod child;
mod filter;
mod huge_scene;
mod small_disk;

use filter::deny;
use huge_scene::{PAGE, Pool, available, each, memory, touch, write};
use softfault::{Fallback, FaultError, HugeBacking, HugeMap, HugeMapOptions, HugeMemory};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};

fn kernel_served(memory: &HugeMemory, no_reserve: bool) -> HugeMap {
    let mut options = HugeMapOptions::new();
    let map = options.fallback(Fallback::Kernel).no_reserve(no_reserve);
    let map = map.map(memory).unwrap();
    assert!(!map.is_managed());
    map
}

fn for_reading(memory: &HugeMemory) -> HugeMap {
    HugeMapOptions::new().read_only(true).map(memory).unwrap()
}

/// The memory once more, by a descriptor that is only for reading.
fn reader(memory: &HugeMemory) -> HugeMemory {
    let number = memory.as_fd().as_raw_fd();
    let file = File::open(format!("/proc/self/fd/{number}")).unwrap();
    HugeMemory::from_fd(file.into()).unwrap()
}

#[track_caller]
fn seal(memory: &HugeMemory, seal: i32) {
    let number = memory.as_fd().as_raw_fd();
    // SAFETY: no memory involved.
    let sealed = unsafe { libc::fcntl(number, libc::F_ADD_SEALS, seal) };
    assert_eq!(sealed, 0, "{}", std::io::Error::last_os_error());
}

/// No map of the memory may write to it: it has maps for reading.
#[track_caller]
fn is_only_read(memory: &HugeMemory, original: &HugeMemory) {
    let before = available();
    let error = memory.map().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");
    assert_eq!(
        available(),
        before,
        "pages that nobody can use are reserved"
    );
    let map = for_reading(memory);
    assert!(!map.is_managed());
    assert_eq!((touch(&map, PAGE), touch(&map, 2 * PAGE)), (7, 0));
    map.populate(..).unwrap();
    assert_eq!(memory.resident_bytes().unwrap(), 4 * PAGE as u64);
    assert_eq!(map.write_at(&[1], 0), Err(FaultError::ReadOnly));
    original.truncate(2 * PAGE as u64).unwrap();
    assert_eq!(map.populate(2 * PAGE..), Err(FaultError::BeyondEnd));
    assert_eq!(map.stats(), softfault::HugeMapStats::default());
}

#[test]
fn memory_of_a_descriptor_for_reading_is_mapped() {
    each(4, |backing| {
        let memory = memory(backing, 4);
        write(&memory.map().unwrap(), PAGE, 7);
        is_only_read(&reader(&memory), &memory);
    });
}

#[test]
fn memory_that_is_sealed_against_new_writers_is_mapped() {
    each(4, |backing| {
        let memory = memory(backing, 4);
        let map = memory.map().unwrap();
        seal(&memory, libc::F_SEAL_FUTURE_WRITE);
        // Of a map that was there before, the writes go on.
        write(&map, PAGE, 7);
        drop(map);
        is_only_read(&memory, &memory);
    });
}

/// The mapping by which pages are requested is no writer.
#[test]
fn memory_without_maps_is_sealed_against_all_writes() {
    each(4, |backing| {
        let memory = memory(backing, 4);
        let other = HugeMemory::from_fd(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
        write(&memory.map().unwrap(), PAGE, 7);
        let reader = reader(&memory);
        let map = for_reading(&reader);
        seal(&memory, libc::F_SEAL_WRITE);
        assert_eq!(touch(&map, PAGE), 7);
        is_only_read(&other, &memory);
    });
}

#[test]
fn a_shortage_of_descriptors_is_named() {
    let test = "a_shortage_of_descriptors_is_named";
    if child::scenario().is_none() {
        child::succeeds(test, "BasePages");
        let Some(_pool) = Pool::with(2) else { return };
        return child::succeeds(test, "Hugetlb");
    }
    let backing = match child::scenario().as_deref() {
        Some("Hugetlb") => HugeBacking::Hugetlb,
        _ => HugeBacking::BasePages,
    };
    let memory = memory(backing, 2);
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 1 << 10,
    };
    let before = available();
    // SAFETY: the limit is there for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) }, 0);
    let error = memory.map().unwrap_err();
    let some = libc::rlimit {
        rlim_cur: 1 << 10,
        ..none
    };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &some) }, 0);
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert_eq!(available(), before, "pages of no map are reserved");
    write(&memory.map().unwrap(), 0, 1);
}

/// The advice of Linux 5.14 on an older kernel, or where a filter denies it.
#[test]
fn pages_come_in_without_the_advice() {
    let test = "pages_come_in_without_the_advice";
    let kinds = [
        ("BasePages", HugeBacking::BasePages),
        ("TransparentHuge", HugeBacking::TransparentHuge),
        ("Hugetlb", HugeBacking::Hugetlb),
    ];
    let Some(scenario) = child::scenario() else {
        for (name, kind) in kinds {
            // The parent has the lock.
            let pool = (kind == HugeBacking::Hugetlb).then(|| Pool::with(4));
            if !matches!(pool, Some(None)) {
                for errno in ["EPERM", "EINVAL", "ENOSYS"] {
                    child::succeeds(test, &format!("{name} {errno}"));
                }
            }
        }
        return;
    };
    let (name, errno) = scenario.split_once(' ').unwrap();
    let errno = match errno {
        "EPERM" => libc::EPERM,
        "EINVAL" => libc::EINVAL,
        _ => libc::ENOSYS,
    };
    let (_, backing) = kinds.into_iter().find(|kind| kind.0 == name).unwrap();
    deny(&[libc::SYS_userfaultfd], libc::EPERM);
    deny(&[libc::SYS_madvise], errno);
    let memory = memory(backing, 4);
    let map = kernel_served(&memory, false);
    map.write_at(b"here", PAGE - 2).unwrap();
    assert_eq!(memory.resident_bytes().unwrap(), 2 * PAGE as u64);
    map.populate(..).unwrap();
    assert_eq!(memory.resident_bytes().unwrap(), 4 * PAGE as u64);
    let mut bytes = [0; 4];
    map.read_at(&mut bytes, PAGE - 2).unwrap();
    assert_eq!(&bytes, b"here");
    memory.truncate(2 * PAGE as u64).unwrap();
    assert_eq!(map.populate(..), Err(FaultError::BeyondEnd));
    assert_eq!(
        map.read_at(&mut bytes, 3 * PAGE),
        Err(FaultError::BeyondEnd)
    );
    if backing == HugeBacking::Hugetlb {
        let hog = HugeMemory::builder().backing(backing);
        let hog = hog.create(available() * PAGE as u64).unwrap();
        let _hog = kernel_served(&hog, false);
        memory.truncate(4 * PAGE as u64).unwrap();
        let other = kernel_served(&memory, true);
        assert_eq!(other.populate(..), Err(FaultError::PoolEmpty));
        assert_eq!(touch(&other, PAGE), b'r');
    }
}

/// An empty pool is no reason where there is none.
#[test]
fn memory_of_no_pool_reports_that_memory_is_short() {
    let test = "memory_of_no_pool_reports_that_memory_is_short";
    if child::scenario().is_none() {
        return child::succeeds(test, "alone");
    }
    deny(&[libc::SYS_userfaultfd], libc::EPERM);
    small_disk::with_file("huge", |file| {
        let memory = HugeMemory::from_fd(file.into()).unwrap();
        assert_ne!(memory.backing(), HugeBacking::Hugetlb);
        let map = kernel_served(&memory, false);
        assert_eq!(map.populate(..), Err(FaultError::NoMemory));
        memory.truncate(0).unwrap();
        assert_eq!(map.populate(..), Err(FaultError::BeyondEnd));
    });
}
