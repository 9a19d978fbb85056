//! Huge memory whose maps the kernel serves: calls bring its pages in and give errors as values, as for maps that are
//! served here.

mod child;
mod filter;
mod huge_scene;
mod small_disk;

use filter::deny;
use huge_scene::{PAGE, Pool, available, memory, touch};
use softfault::{Fallback, FaultError, HugeBacking, HugeMap, HugeMapOptions, HugeMemory};

fn kernel_served(memory: &HugeMemory, no_reserve: bool) -> HugeMap {
    let mut options = HugeMapOptions::new();
    let map = options.fallback(Fallback::Kernel).no_reserve(no_reserve);
    let map = map.map(memory).unwrap();
    assert!(!map.is_managed());
    map
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
