//! Many threads that map and unmap in one space beside one another (`verbs=shared`), while faults lock VMAs without
//! `mmap_lock`, and verbs that hold it alone come between.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use softfault_engine::anon::Anonymous;
use softfault_engine::fault::{self, NeverInterrupted};
use softfault_engine::mm::backing::VmOps;
use softfault_engine::mm::{AddressSpace, Attributes, Backing, MmError, Protection, VmaSlabs};
use softfault_engine::policy::{MmapVerbs, Policies, SpaceLocks};
use softfault_engine::{Clock, PAGE_SIZE};
use softfault_oracle::{Random, Rig};
use sync::Arc;

const THREADS: usize = 6;
const READERS: usize = 2;
/// Pages that all of them map in.
const PAGES: usize = 160;
const ROUNDS: usize = 20_000;

struct Wall(Instant);

impl Clock for Wall {
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Memory without pages, of which each mapping has its own.
#[derive(Debug)]
struct Own {
    number: u64,
    pages: usize,
}

impl VmOps for Own {
    fn object(&self) -> *const () {
        core::ptr::without_provenance(self.number as usize)
    }

    fn is_alone(&self, pgoff: u64, range: &Range<usize>) -> bool {
        pgoff == 0 && range.len() == self.pages * PAGE_SIZE
    }
}

fn addresses(pages: &Range<usize>) -> Range<usize> {
    (100 + pages.start) * PAGE_SIZE..(100 + pages.end) * PAGE_SIZE
}

/// The number of the mapping of each page, or 0.
struct Owners(Vec<AtomicU64>);

impl Owners {
    fn replace(&self, pages: &Range<usize>, before: u64, after: u64) {
        for page in pages.clone() {
            let was = self.0[page].swap(after, Ordering::SeqCst);
            assert_eq!(was, before, "page {page} has another owner");
        }
    }
}

/// A thread that maps and unmaps; the others go on as long as there are any, also when one has panicked.
struct AtWork<'a>(&'a AtomicUsize);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[test]
fn each_page_has_one_mapping_at_most() {
    let slabs = VmaSlabs::new(10_000);
    let locks = SpaceLocks {
        verbs: MmapVerbs::Shared,
        ..SpaceLocks::default()
    };
    let space = || {
        let clock = Arc::new(Wall(Instant::now()));
        AddressSpace::with_lock(slabs.clone(), clock, locks).unwrap()
    };
    let (space, child) = (space(), space());
    let owners = Owners((0..PAGES).map(|_| AtomicU64::new(0)).collect());
    let numbers = AtomicU64::new(1);
    let left = AtomicUsize::new(THREADS);
    let (mapped, overlaps, found) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (space, owners, numbers, left) = (&space, &owners, &numbers, &left);
            let (mapped, overlaps) = (&mapped, &overlaps);
            scope.spawn(move || {
                let _at_work = AtWork(left);
                let mut random = Random::new(0x5bd1_e995 ^ (thread as u64 + 1));
                let mut own: Vec<(Range<usize>, u64)> = Vec::new();
                for _ in 0..ROUNDS {
                    if own.len() > 12 || !own.is_empty() && random.below(2) == 0 {
                        let (pages, number) = own.swap_remove(random.below(own.len()));
                        owners.replace(&pages, number, 0);
                        let mut pieces = 0;
                        let all = addresses(&pages);
                        let unmapped = space.munmap(all.clone(), |piece, attributes| {
                            assert_eq!((piece, attributes.pgoff), (all.clone(), 0));
                            pieces += 1;
                        });
                        unmapped.unwrap();
                        assert_eq!(pieces, 1);
                        continue;
                    }
                    let start = random.below(PAGES - 4);
                    let pages = start..start + 1 + random.below(4);
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    let backing = Backing::new(Own {
                        number,
                        pages: pages.len(),
                    });
                    let attributes = Attributes {
                        backing,
                        ..Attributes::default()
                    };
                    match space.mmap(addresses(&pages), attributes) {
                        Ok(()) => {
                            owners.replace(&pages, 0, number);
                            mapped.fetch_add(1, Ordering::Relaxed);
                            own.push((pages, number));
                        }
                        Err(MmError::Overlap) => {
                            overlaps.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => panic!("{error:?}"),
                    }
                }
                for (pages, number) in own {
                    owners.replace(&pages, number, 0);
                    space.munmap(addresses(&pages), |_, _| {}).unwrap();
                }
            });
        }
        for reader in 0..READERS {
            let (space, left, found) = (&space, &left, &found);
            scope.spawn(move || {
                let mut random = Random::new(0x1b87_3593 ^ (reader as u64 + 1));
                while left.load(Ordering::Acquire) > 0 {
                    let page = random.below(PAGES);
                    let address = addresses(&(page..page + 1)).start;
                    let read = match random.below(8) {
                        0 => space.lock_vma_or_mmap_lock(address).ok(),
                        _ => space.lock_vma(address),
                    };
                    let Some(read) = read else { continue };
                    assert_eq!(read.vma().space(), space.id());
                    assert!(read.vma().range().contains(&address));
                    let range = read.vma().range();
                    read.with(|now| {
                        let ops = now.backing.ops().unwrap();
                        assert!(ops.is_alone(now.pgoff, &range), "{now:?}");
                    });
                    found.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while left.load(Ordering::Acquire) > 0 {
                space.fork(&child).unwrap();
                let mmap = child.mmap_lock().read();
                let mut end = 0;
                child.for_each_vma(&mmap, addresses(&(0..PAGES)), |vma| {
                    let (range, now) = (vma.range(), vma.attributes(&mmap));
                    assert!(end <= range.start, "two VMAs overlap");
                    let ops = now.backing.ops().unwrap();
                    assert!(ops.is_alone(now.pgoff, &range), "{now:?}");
                    end = range.end;
                });
                drop(mmap);
                child.exit(|_, _| {});
            }
        });
    });
    space.validate(&space.mmap_lock().read());
    assert_eq!((space.map_count(), slabs.vmas_in_use()), (0, 0));
    for count in [mapped, overlaps, found] {
        assert!(count.into_inner() > 0);
    }
    // Many verbs did not hold the lock alone: forks are the only others that come all the time.
    println!("{:?}", space.lock_stats());
}

/// Where no window is.
const ELSEWHERE: usize = 0x7100_0000_0000;

fn rig() -> Rig {
    let locks = SpaceLocks {
        verbs: MmapVerbs::Shared,
        ..SpaceLocks::default()
    };
    let policies = Policies {
        locks,
        ..Policies::default()
    };
    Rig::with_policies(4096, policies)
}

fn written(backing: Backing) -> Attributes {
    Attributes {
        backing,
        protection: Protection::ReadWrite,
        ..Attributes::default()
    }
}

/// While memory is unmapped that another core has touched, that core's thread maps other memory in its place. It never reads what
/// was there before, and what it writes stays.
#[test]
fn what_is_mapped_in_the_place_of_other_memory_shows_none_of_it() {
    let rig = rig();
    let range = ELSEWHERE..ELSEWHERE + 4 * PAGE_SIZE;
    let memory = || Anonymous::new(rig.node.clone(), range.len()).unwrap();
    let (old, new) = (memory(), memory());
    rig.space.mmap(range.clone(), written(old.into())).unwrap();
    let (touched, is_touched) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    std::thread::scope(|scope| {
        let (rig, place) = (&rig, range.clone());
        scope.spawn(move || {
            let mut core = rig.mmu.core().unwrap();
            let never = &NeverInterrupted;
            fault::write_at(&mut core, &rig.space, ELSEWHERE, b"old!", never).unwrap();
            touched.send(()).unwrap();
            has_begun.recv().unwrap();
            rig.space.mmap(place, written(new.into())).unwrap();
            let mut bytes = *b"....";
            fault::read_at(&mut core, &rig.space, ELSEWHERE, &mut bytes, never).unwrap();
            assert_eq!(bytes, [0; 4]);
            fault::write_at(&mut core, &rig.space, ELSEWHERE, b"mine", never).unwrap();
            // Nobody waits for it any more.
            let _ = done.send(());
        });
        is_touched.recv().unwrap();
        let unmapped = rig.space.munmap(range.clone(), |_, _| {
            begun.send(()).unwrap();
            // A map that need not wait for the end of this is done by then.
            let _ = is_done.recv_timeout(Duration::from_millis(200));
        });
        unmapped.unwrap();
    });
    let mut bytes = *b"....";
    rig.read(ELSEWHERE, &mut bytes).unwrap();
    assert_eq!(&bytes, b"mine");
    rig.unmap(range);
    rig.finish();
}

/// Memory that one VMA may show, and which is alone in one range.
#[derive(Debug)]
struct Once {
    own: Range<usize>,
    space: AtomicU64,
    is_claimed: AtomicBool,
    /// How long a thread stays in its claim.
    stay: Duration,
}

#[derive(Debug)]
struct OnceOps(Arc<Once>);

impl VmOps for OnceOps {
    fn object(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }

    fn is_alone(&self, pgoff: u64, range: &Range<usize>) -> bool {
        pgoff == 0 && *range == self.0.own
    }

    fn claim(&self, space: u64) -> bool {
        let (set, failed) = (Ordering::SeqCst, Ordering::SeqCst);
        let claimed = self.0.space.compare_exchange(0, space, set, failed);
        if claimed.is_ok() {
            self.0.is_claimed.store(true, set);
            let since = Instant::now();
            while since.elapsed() < self.0.stay {
                std::hint::spin_loop();
            }
        }
        claimed.is_ok()
    }
}

/// One claims the memory and cannot map it beside others, since its range does not lie in one leaf; the other waits for the end of that,
/// and may be the first to have `mmap_lock` for write.
#[test]
fn two_maps_of_one_memory_are_one() {
    const ROUNDS: usize = 4000;
    let rig = rig();
    let far = ELSEWHERE + (1 << 30)..ELSEWHERE + (1 << 30) + 2 * PAGE_SIZE;
    let filler = |n: usize| ELSEWHERE + n * 4 * PAGE_SIZE;
    let fill = |n: usize| filler(n)..filler(n) + PAGE_SIZE;
    // In order: all leaves but the last are full.
    for n in 0..60 {
        let memory = Anonymous::new(rig.node.clone(), PAGE_SIZE).unwrap();
        rig.space.mmap(fill(n), written(memory.into())).unwrap();
    }
    let bounds = [20, 40];
    for bound in bounds {
        rig.unmap(fill(bound));
    }
    let mut firsts = [0; 2];
    for round in 0..ROUNDS {
        let bound = filler(bounds[round % 2]);
        let own = bound - PAGE_SIZE..bound + PAGE_SIZE;
        let memory = Arc::new(Once {
            own: own.clone(),
            space: AtomicU64::new(0),
            is_claimed: AtomicBool::new(false),
            stay: Duration::from_micros(2 + round as u64 % 16),
        });
        let map = |range: Range<usize>| {
            let attributes = written(Backing::new(OnceOps(memory.clone())));
            rig.space.mmap(range, attributes)
        };
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                while !memory.is_claimed.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
                map(far.clone())
            });
            [map(own.clone()), other.join().unwrap()]
        });
        let first = both.iter().position(|mapped| mapped.is_ok()).unwrap();
        assert_eq!(both[1 - first], Err(MmError::Overlap), "round {round}");
        firsts[first] += 1;
        rig.unmap(own);
        rig.unmap(far.clone());
    }
    println!("{firsts:?} maps");
    for n in (0..60).filter(|n| !bounds.contains(n)) {
        rig.unmap(fill(n));
    }
    rig.finish();
}
