//! Many threads on few slots: mappings come and go in several spaces of one
//! machine, while faults lock any VMA that they find, without `mmap_lock`.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use softfault_engine::mm::find::try_lock_at;
use softfault_engine::mm::tree::Walk;
use softfault_engine::mm::{AddressSpace, Advice, Attributes, MmError, VmaRead, VmaSlabs};
use softfault_engine::policy::{SpaceLocks, VmaLockKind, VmaReuse};
use softfault_engine::{Clock, PAGE_SIZE};
use softfault_oracle::{Finally, Numbered, Random};
use sync::Arc;

const SPACES: usize = 3;
/// Threads that change each space, each in a part of its own.
const WRITERS: usize = 2;
/// Threads that fault, anywhere.
const READERS: usize = 4;
/// Pages of one writer's part.
const PART: usize = 24;
/// Rounds every writer makes at least.
const ROUNDS: usize = 1000;
/// Reuses to be caught of each kind before it is over.
const ENOUGH: u64 = 10;
/// Rounds after which a writer gives up waiting for them.
const MOST_ROUNDS: usize = 2_000_000;

struct Wall(Instant);

impl Clock for Wall {
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// The same addresses in all spaces: a VMA of the wrong one would fit.
fn page(number: usize) -> usize {
    (100 + number) * PAGE_SIZE
}

/// A mark that says to which space and page a mapping belongs.
fn attributes(space: &AddressSpace, number: usize) -> Attributes {
    Attributes {
        backing: Numbered(space.id()).into(),
        pgoff: number as u64,
        ..Attributes::default()
    }
}

/// The invariant of a VMA for as long as it is locked.
fn verify(space: &AddressSpace, read: &VmaRead<'_>, address: usize) {
    let vma = read.vma();
    assert_eq!(vma.space(), space.id());
    assert!(vma.range().contains(&address), "{:x?}", vma.range());
    vma.assert_attached();
    let visible = space.mmap_lock().visible_readers(vma);
    assert!(vma.readers() + visible >= 1, "we are one");
    read.with(|attributes| {
        assert_eq!(attributes.backing, Numbered(space.id()).into());
        assert_eq!(page(attributes.pgoff as usize), vma.start());
    });
}

/// `lock_vma` in its two halves, between which others get their turn: the slot
/// that was found is often another VMA by then.
fn lock_vma_slowly(space: &AddressSpace, address: usize) -> Option<VmaRead<'_>> {
    let vma = space.find_unlocked(address, &mut Walk::default())?;
    std::thread::yield_now();
    try_lock_at(vma, space.mmap_lock(), address).ok()
}

/// Faults in progress, by page of each space: a fault claims its page while it has
/// the VMA locked, and a writer must find 0 once it has unmapped.
struct InProgress(Vec<AtomicUsize>);

impl InProgress {
    fn of(&self, space: usize, number: usize) -> &AtomicUsize {
        &self.0[space * WRITERS * PART + number]
    }
}

/// One round of a writer: maps a run of pages of its part, advises some,
/// unmaps some. About half of the part is mapped at any moment.
fn round(space: &AddressSpace, which: usize, part: usize, random: &mut Random, all: &InProgress) {
    let first = part * PART;
    let mut some = |most: usize| {
        let from = random.below(PART);
        let to = (from + 1 + random.below(most)).min(PART);
        first + from..first + to
    };
    let (new, advised, old) = (some(4), some(4), some(6));
    // Where something is mapped already, it stays.
    let mapped = space.mmap(page(new.start)..page(new.end), attributes(space, new.start));
    assert!(matches!(mapped, Ok(()) | Err(MmError::Overlap)));
    let advice = [Advice::Normal, Advice::Random][advised.start % 2];
    let done = space.madvise(page(advised.start)..page(advised.end), advice);
    assert!(matches!(done, Ok(()) | Err(MmError::Unmapped)));
    unmap(space, which, old, all);
}

/// Unmaps these pages and asserts that no fault is in progress under them.
fn unmap(space: &AddressSpace, which: usize, pages: Range<usize>, all: &InProgress) {
    let addresses = page(pages.start)..page(pages.end);
    let unmapped = space.munmap(addresses, |piece, attributes| {
        assert_eq!(attributes.backing, Numbered(space.id()).into());
        for number in pages
            .clone()
            .filter(|&number| piece.contains(&page(number)))
        {
            let faults = all.of(which, number).load(Ordering::Relaxed);
            assert_eq!(faults, 0, "a fault in progress after munmap");
        }
    });
    unmapped.unwrap();
}

#[test]
fn faults_lock_the_right_vma_or_none() {
    stress(VmaLockKind::Refcount);
}

#[test]
fn faults_lock_the_right_vma_or_none_by_a_semaphore() {
    stress(VmaLockKind::Rwsem);
}

#[test]
fn faults_lock_the_right_vma_or_none_by_a_bias() {
    stress(VmaLockKind::Biased);
}

#[test]
fn faults_meet_no_other_vma_after_a_grace_period() {
    for vma in [VmaLockKind::Refcount, VmaLockKind::Rwsem] {
        let reuse = VmaReuse::Rcu;
        stress(SpaceLocks {
            vma,
            reuse,
            ..SpaceLocks::default()
        });
    }
}

fn stress(locks: impl Into<SpaceLocks>) {
    let locks = locks.into();
    let waits = locks.reuse == VmaReuse::Rcu;
    let slabs = VmaSlabs::new(10_000);
    let spaces: Vec<AddressSpace> = (0..SPACES)
        .map(|_| {
            let clock = Arc::new(Wall(Instant::now()));
            AddressSpace::with_lock(slabs.clone(), clock, locks).unwrap()
        })
        .collect();
    let in_progress = InProgress(
        (0..SPACES * WRITERS * PART)
            .map(|_| AtomicUsize::new(0))
            .collect(),
    );
    let (spaces, in_progress) = (&spaces[..], &in_progress);
    // Slots that had gone to another space, and all that were caught.
    let caught = || {
        let stats = spaces.iter().map(AddressSpace::lock_stats);
        let pairs = stats.map(|stats| (stats.miss_other_space, stats.caught_reuses()));
        pairs.fold((0, 0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1))
    };
    // A lookup that ends before its VMA is reused meets it unmapped at most.
    let all_caught = || waits || caught().0 >= ENOUGH && caught().1 >= caught().0 + ENOUGH;
    let writers_left = AtomicUsize::new(SPACES * WRITERS);
    let locked = AtomicU64::new(0);
    // A reader that fails must not leave the writers waiting for it.
    let failed = AtomicBool::new(false);

    std::thread::scope(|scope| {
        for writer in 0..SPACES * WRITERS {
            let (which, part) = (writer % SPACES, writer / SPACES);
            let (writers_left, all_caught, failed, locked) =
                (&writers_left, &all_caught, &failed, &locked);
            scope.spawn(move || {
                let _end = Finally(|| {
                    writers_left.fetch_sub(1, Ordering::Release);
                    failed.fetch_or(std::thread::panicking(), Ordering::Relaxed);
                });
                let mut random = Random::new(0x9e37_79b9_7f4a_7c15 ^ (writer as u64 + 1));
                for done in 0..MOST_ROUNDS {
                    let enough =
                        done >= ROUNDS && all_caught() && locked.load(Ordering::Relaxed) >= 1_000;
                    if enough || failed.load(Ordering::Relaxed) {
                        break;
                    }
                    round(&spaces[which], which, part, &mut random, in_progress);
                }
                unmap(
                    &spaces[which],
                    which,
                    part * PART..(part + 1) * PART,
                    in_progress,
                );
            });
        }
        for reader in 0..READERS {
            let (writers_left, failed, locked) = (&writers_left, &failed, &locked);
            scope.spawn(move || {
                let _end = Finally(|| {
                    failed.fetch_or(std::thread::panicking(), Ordering::Relaxed);
                });
                let mut random = Random::new(0xda94_2042_e4dd_58b5 ^ (reader as u64 + 1));
                while writers_left.load(Ordering::Acquire) > 0 {
                    let which = random.below(SPACES);
                    let space = &spaces[which];
                    let number = random.below(WRITERS * PART);
                    let address = page(number) + random.below(PAGE_SIZE);
                    let read = match random.below(8) {
                        0 => space.lock_vma_or_mmap_lock(address).ok(),
                        1..4 => space.lock_vma(address),
                        _ if waits => space.lock_vma(address),
                        _ => lock_vma_slowly(space, address),
                    };
                    let Some(read) = read else { continue };
                    let faults = in_progress.of(which, number);
                    faults.fetch_add(1, Ordering::Relaxed);
                    verify(space, &read, address);
                    // Some faults take longer, and let the writers come.
                    if random.below(16) == 0 {
                        std::thread::yield_now();
                        verify(space, &read, address);
                    }
                    faults.fetch_sub(1, Ordering::Relaxed);
                    // Too little contention to wait for it.
                    if random.below(4) == 0 {
                        read.bias(space.mmap_lock());
                    }
                    drop(read);
                    locked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });

    println!(
        "locked {}, slots reused {}",
        locked.load(Ordering::Relaxed),
        slabs.vma_reuses()
    );
    for space in spaces {
        let stats = space.lock_stats();
        println!("{stats:?}");
        space.validate(&space.mmap_lock().read());
        assert_eq!(space.map_count(), 0);
    }
    assert_eq!(slabs.vmas_in_use(), 0);
    assert_eq!(slabs.vma_locks_in_use(), 0);
    assert_eq!(slabs.nodes_in_use() as usize, SPACES);
    assert!(locked.load(Ordering::Relaxed) > 0, "no VMA was ever locked");
    assert!(slabs.vma_reuses() > 0, "no slot was ever reused");
    let slots = slabs.vma_slots();
    assert_eq!(waits, slots.waiting > 0, "{slots:?}");
    assert!(!waits || caught().0 == 0, "met another space's VMA");
    // Else the re-checks under the lock were not tested.
    assert!(
        all_caught(),
        "reuses caught (other space, all): {:?}",
        caught()
    );
}

/// The same in a memory cgroup of 8 MiB, where one can be made (v1 or v2, by
/// root): threads are put aside at other places then.
#[test]
fn faults_lock_the_right_vma_or_none_in_a_small_cgroup() {
    let Some(group) = SmallGroup::new(8 << 20) else {
        return softfault_skip::skipped("root", "no memory cgroup can be made here");
    };
    let enter = r#"echo $$ > "$0" && exec "$@""#;
    let output = Command::new("sh")
        .args(["-c", enter])
        .arg(group.0.join("cgroup.procs"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "vma_stress::faults_lock_the_right_vma_or_none"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{output:?}");
}

/// A memory cgroup with a limit, which goes with this.
struct SmallGroup(PathBuf);

impl SmallGroup {
    fn new(bytes: usize) -> Option<Self> {
        let name = format!("softfault-vma-stress-{}", std::process::id());
        let places = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        places.iter().find_map(|(parent, limit)| {
            let group = Path::new(parent).join(&name);
            std::fs::create_dir(&group).ok()?;
            let group = Self(group);
            let limit = group.0.join(limit);
            // Where this is no cgroup file system the folder is empty.
            limit.exists().then_some(())?;
            std::fs::write(limit, bytes.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for SmallGroup {
    fn drop(&mut self) {
        // A process that has just gone may still be counted for a moment.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
