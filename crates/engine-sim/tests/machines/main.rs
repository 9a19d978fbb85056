//! The engine on simulated machines.

mod rig;

use rig::{Rig, topology};
use softfault_engine_sim::PAGE_SIZE;
use softfault_engine_sim::lock::{Mutex, RwSem};
use softfault_engine_sim::mm::backing::VmOps;
use softfault_engine_sim::mm::{AddressSpace, Attributes, Backing, VmaSlabs};
use softfault_engine_sim::policy::{MmapQueue, VmaLockKind};
use sync::Arc;
use sync::machine::{self, Config, Heap, Report};

#[global_allocator]
static HEAP: Heap = Heap;

const QUEUES: [MmapQueue; 3] = [MmapQueue::Steal, MmapQueue::PhaseFair, MmapQueue::Linux];

fn config(cores: usize, seed: u64) -> Config {
    Config::new(topology(2, cores.div_ceil(2) as u16), cores, seed)
}

/// Runs `threads` of `body`, each with its number, and waits for them.
fn all(threads: usize, body: impl Fn(usize) + Clone + Send + 'static) {
    let threads: Vec<_> = (0..threads)
        .map(|thread| {
            let body = body.clone();
            sync::thread::spawn(move || body(thread))
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("it ends"));
}

#[test]
fn a_mutex_excludes_on_more_threads_than_cores() {
    for seed in 0..8 {
        let (sum, _) = machine::run(config(4, seed), || {
            let count = Arc::new(Mutex::new(0));
            let shared = count.clone();
            all(12, move |_| {
                for _ in 0..50 {
                    let mut count = shared.lock();
                    let seen = *count;
                    sync::work(300);
                    *count = seen + 1;
                }
            });
            *count.lock()
        })
        .expect("nobody waits for ever");
        assert_eq!(sum, 12 * 50);
    }
}

#[test]
fn readers_share_and_writers_do_not() {
    for queue in QUEUES {
        let (sum, _) = machine::run(config(8, 3), || {
            let sem = Arc::new(RwSem::with_queue(Arc::new(rig::VirtualClock), queue));
            let value = Arc::new(sync::atomic::AtomicU64::new(0));
            let (shared, count) = (sem.clone(), value.clone());
            all(8, move |thread| {
                for round in 0..40 {
                    if (thread + round) % 4 == 0 {
                        let _guard = shared.write();
                        let seen = count.load(sync::atomic::Ordering::Relaxed);
                        sync::work(500);
                        count.store(seen + 1, sync::atomic::Ordering::Relaxed);
                    } else {
                        let _guard = shared.read();
                        let seen = count.load(sync::atomic::Ordering::Relaxed);
                        sync::work(500);
                        assert_eq!(count.load(sync::atomic::Ordering::Relaxed), seen);
                    }
                }
            });
            value.load(sync::atomic::Ordering::Relaxed)
        })
        .expect("nobody waits for ever");
        assert_eq!(sum, 8 * 10);
    }
}

/// Writers that slept, of 800, where eight threads take a lock on two cores again and
/// again, for a sixth of their time.
fn writers_that_sleep(queue: MmapQueue) -> u64 {
    let (waits, _) = machine::run(config(2, 1), move || {
        let sem = Arc::new(RwSem::with_queue(Arc::new(rig::VirtualClock), queue));
        let shared = sem.clone();
        all(8, move |_| {
            for _ in 0..100 {
                let guard = shared.write();
                sync::work(2_000);
                drop(guard);
                sync::work(10_000);
            }
        });
        sem.write_waits().snapshot()
    })
    .expect("nobody waits for ever");
    assert_eq!(waits.count, 800);
    waits.count - waits.ranges[0]
}

#[test]
fn threads_that_take_a_lock_all_the_time_are_no_convoy() {
    // Virtual time, and one outcome for a seed.
    let [steal, phase_fair, linux] = QUEUES.map(writers_that_sleep);
    println!("writers that slept, of 800: steal {steal}, phase-fair {phase_fair}, linux {linux}");
    assert!(phase_fair > 700, "{phase_fair}");
    assert!(4 * steal < phase_fair, "{steal}");
}

/// Faults of all cores in one mapping.
fn faults(cores: usize, seed: u64, kind: VmaLockKind) -> Report {
    const PAGES: usize = 32;
    let ran = machine::run(config(cores, seed), || {
        let rig = Rig::new(2 * cores * PAGES + 8192, kind);
        let start = rig.map(cores * PAGES);
        let shared = rig.clone();
        all(cores, move |thread| {
            let mut core = shared.core();
            for page in 0..PAGES {
                shared.touch(&mut core, start, thread * PAGES + page);
            }
        });
        rig.unmap(start, cores * PAGES);
    });
    ran.expect("nobody waits for ever").1
}

#[test]
fn faults_of_one_mapping_have_one_outcome_for_a_seed() {
    for kind in [VmaLockKind::Refcount, VmaLockKind::Rwsem] {
        let first = faults(16, 5, kind);
        let again = faults(16, 5, kind);
        assert_eq!(first.digest, again.digest);
        assert_eq!(first.elapsed_ns, again.elapsed_ns);
        assert_eq!(first.hot, again.hot);
        assert_ne!(first.digest, faults(16, 6, kind).digest);
        assert!(first.hot[0].place.starts_with("crates/engine/src/"));
    }
}

#[test]
fn a_shared_counter_costs_more_on_more_cores() {
    let waits = |cores: usize| {
        let report = faults(cores, 1, VmaLockKind::Refcount);
        report.hot.iter().map(|line| line.ns()).sum::<u64>() / cores as u64
    };
    let (few, many) = (waits(2), waits(32));
    assert!(many > 2 * few, "{few} ns a core on 2 cores, {many} on 32");
}

#[test]
fn ending_a_bias_costs_a_line_for_each_processor_that_used_it() {
    let taken = [VmaLockKind::Refcount, VmaLockKind::Biased].map(|kind| {
        [8, 56, 128].map(|cores| {
            let (taken, _) = machine::run(config(cores, 1), move || write_lock(kind, cores))
                .expect("nobody waits for ever");
            println!("{kind:?}, {cores} processors: {taken} ns");
            taken
        })
    });
    let [refcount, biased] = taken;
    for ((refcount, biased), cores) in refcount.into_iter().zip(biased).zip([8, 56, 128]) {
        // A transfer from the other socket and four read-modify-writes, and what
        // the loop itself takes.
        let lines = cores * (120 + 4 * 5 + 20);
        assert!(biased > refcount && biased < refcount + lines, "{biased}");
    }
}

/// Virtual nanoseconds of a write lock of a VMA that all have read.
fn write_lock(kind: VmaLockKind, cores: usize) -> u64 {
    let clock = Arc::new(rig::VirtualClock);
    let space = AddressSpace::with_lock(VmaSlabs::new(16), clock, kind).expect("room for it");
    let attributes = Attributes {
        backing: Backing::new(Numbered(1)),
        ..Attributes::default()
    };
    space
        .mmap(PAGE_SIZE..2 * PAGE_SIZE, attributes)
        .expect("room for it");
    let space = Arc::new(space);
    let read = space.lock_vma(PAGE_SIZE).expect("it is mapped");
    read.bias(space.mmap_lock());
    drop(read);
    let shared = space.clone();
    all(cores, move |_| {
        for _ in 0..100 {
            let _read = shared.lock_vma(PAGE_SIZE);
            sync::work(1_000);
        }
    });
    let begin = machine::now_ns();
    let mmap = space.mmap_lock().write();
    let vma = space.find(&mmap, PAGE_SIZE).expect("it is mapped");
    vma.start_write(&mmap);
    let taken = machine::now_ns() - begin;
    drop(mmap);
    space.exit(|_, _| {});
    taken
}

/// A backing without pages, which has a number.
#[derive(Debug)]
struct Numbered(u64);

impl VmOps for Numbered {
    fn object(&self) -> *const () {
        core::ptr::without_provenance(self.0 as usize)
    }
}
