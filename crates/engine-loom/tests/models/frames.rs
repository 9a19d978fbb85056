//! Models of frames: the pool of the cache, which grows and shrinks under the
//! budget, and those of the soft page tables, with their shards, their depot
//! and their references.
//!
//! Loom watches the contents of a frame: a frame of two owners, or one whose
//! next owner does not come after the last, ends the model.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::model::spawn;
use crate::model::{apart, explore, schedules};
use loom::cell::UnsafeCell;
use softfault_engine_loom::PAGE_SIZE;
use softfault_engine_loom::budget::Budget;
use softfault_engine_loom::cache::frames::{CHUNK_PAGES, FrameMemory, Frames as Pool};
use softfault_engine_loom::mmu::TABLE_SPAN;
use softfault_engine_loom::mmu::soft::chain::Chain;
use softfault_engine_loom::mmu::soft::frames::Frames;
use sync::run_on;

/// Pages of a run, and runs of a chunk.
const RUN: usize = 16;
const RUNS: usize = CHUNK_PAGES / RUN;
/// The charge of a chunk: itself and a page table.
const CHUNK: u64 = CHUNK_PAGES as u64 + 1;

/// Two chunks, whose bytes are not touched: a cell for each records its user. The
/// system has memory for the second while `has` is true.
struct Memory {
    cells: [UnsafeCell<()>; 2],
    has: AtomicBool,
}

// SAFETY: nothing but cells that loom checks.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl FrameMemory for Memory {
    fn bytes(&self) -> usize {
        2 * TABLE_SPAN
    }

    fn provide(&self, chunk: usize) -> Option<NonNull<u8>> {
        let at = core::ptr::without_provenance_mut((chunk + 1) * TABLE_SPAN);
        (chunk == 0 || self.has.load(Relaxed)).then(|| NonNull::new(at))?
    }

    fn discard(&self, chunk: usize, at: NonNull<u8>) {
        assert_eq!(at.addr().get(), (chunk + 1) * TABLE_SPAN);
        self.cells[chunk].with_mut(|_| ());
    }
}

/// A pool whose first chunk is in use.
struct Pooled {
    pool: Pool,
    memory: Arc<Memory>,
    budget: Arc<Budget>,
}

impl Pooled {
    fn new(budget: u64) -> Arc<Self> {
        // In the part that has the first chunk; the second chunk is of the other part.
        run_on(0);
        let memory = Arc::new(Memory {
            cells: core::array::from_fn(|_| UnsafeCell::new(())),
            has: AtomicBool::new(true),
        });
        let budget = Budget::new(budget);
        let pool = Pool::new(memory.clone(), Arc::clone(&budget)).unwrap();
        for _ in 0..RUNS {
            pool.alloc(RUN, 2 * CHUNK_PAGES, 0).unwrap();
        }
        Arc::new(Self {
            pool,
            memory,
            budget,
        })
    }

    /// Takes a run of the second chunk, uses it, and puts it back.
    fn use_one(&self) -> bool {
        let Some(frame) = self.pool.alloc(RUN, 2 * CHUNK_PAGES, 0) else {
            return false;
        };
        // Shared: another may use another run of the chunk.
        self.memory.cells[frame as usize / CHUNK_PAGES].with(|_| ());
        self.pool.free(frame, RUN);
        true
    }

    fn check(&self) {
        let chunks = self.pool.counts().present / CHUNK_PAGES;
        assert_eq!(self.budget.charged(), (chunks as u64 - 1) * CHUNK);
        assert!(self.budget.peak() <= self.budget.limit());
        assert_eq!(self.pool.counts().used, CHUNK_PAGES);
    }
}

#[test]
fn a_pool_that_grows_against_a_shrink() {
    explore(Some(4), || {
        let pooled = Pooled::new(CHUNK);
        // There is a chunk that may go.
        assert!(pooled.use_one());
        let other = {
            let pooled = Arc::clone(&pooled);
            spawn(move || pooled.use_one())
        };
        pooled.pool.shrink(0);
        // Charged for until it was discarded.
        other.join().unwrap();
        pooled.check();
        pooled.pool.shrink(0);
        assert_eq!(pooled.budget.charged(), 0);
    });
}

#[test]
fn a_pool_that_cannot_grow_pays_back() {
    explore(Some(4), || {
        let pooled = Pooled::new(CHUNK);
        pooled.memory.has.store(false, Relaxed);
        let other = {
            let pooled = Arc::clone(&pooled);
            spawn(move || pooled.use_one())
        };
        assert!(!pooled.use_one());
        assert!(!other.join().unwrap());
        pooled.check();
    });
}

/// A row goes to a window with its chunk, while another thread asks for a chunk. That thread gets one when the row has been
/// evicted and its pages were uncharged.
#[test]
fn a_row_that_is_given_away_against_one_that_grows() {
    explore(Some(3), || {
        let pooled = Pooled::new(CHUNK);
        let mut frame = None;
        for block in 0..RUNS {
            frame = pooled.pool.alloc_in_row(block, frame, 2 * CHUNK_PAGES, 0);
            assert_eq!(frame, Some((CHUNK_PAGES + block * RUN) as u32));
        }
        let frame = CHUNK_PAGES as u32;
        assert!(pooled.pool.is_full_row(frame));
        let other = {
            let pooled = Arc::clone(&pooled);
            spawn(move || pooled.use_one())
        };
        pooled.memory.cells[1].with(|_| ());
        assert!(pooled.pool.give_away(frame));
        let had = other.join().unwrap();
        pooled.check();
        assert_eq!(pooled.budget.charged(), u64::from(had) * CHUNK);
        assert!(pooled.use_one());
    });
}

/// There is room for a chunk that is discarded, and for the same when it is taken again at once.
#[test]
fn two_grow_a_pool_and_one_shrinks_it() {
    explore(Some(2), || {
        let pooled = Pooled::new(2 * CHUNK);
        let others = [(); 2].map(|()| {
            let pooled = Arc::clone(&pooled);
            spawn(move || pooled.use_one())
        });
        pooled.pool.shrink(0);
        for other in others {
            other.join().unwrap();
        }
        pooled.check();
    });
}

/// Two find a chunk that may go, each in another part. A demand fault always has frames to turn to, so one stays.
#[test]
fn a_chunk_stays_where_two_shrink_a_pool() {
    explore(Some(3), || {
        let pooled = Pooled::new(CHUNK);
        assert!(pooled.use_one());
        for run in 0..RUNS {
            pooled.pool.free((run * RUN) as u32, RUN);
        }
        let other = {
            let pooled = Arc::clone(&pooled);
            spawn(move || {
                run_on(1);
                pooled.pool.shrink(0)
            })
        };
        let given = pooled.pool.shrink(0) + other.join().unwrap();
        assert_eq!(given, CHUNK);
        assert_eq!(pooled.budget.charged(), 0);
        assert_eq!(pooled.pool.counts().present, CHUNK_PAGES);
        assert!(pooled.use_one());
    });
}

/// The only chunk becomes free while a thread tries to add another, for which there is no room: it stays.
#[test]
fn the_last_chunk_stays_where_a_pool_cannot_grow() {
    explore(Some(3), || {
        let pooled = Pooled::new(0);
        for run in 1..RUNS {
            pooled.pool.free((run * RUN) as u32, RUN);
        }
        let other = {
            let pooled = Arc::clone(&pooled);
            spawn(move || {
                let frame = pooled.pool.alloc_in_row(0, None, 2 * CHUNK_PAGES, 0);
                frame.inspect(|&frame| pooled.pool.free(frame, RUN));
            })
        };
        pooled.pool.free(0, RUN);
        assert_eq!(pooled.pool.shrink(0), 0);
        other.join().unwrap();
        assert_eq!(pooled.pool.counts().present, CHUNK_PAGES);
        assert!(pooled.use_one());
    });
}

/// Soft frames: so many, in two shards.
fn soft(frames: usize) -> Arc<Frames> {
    Arc::new(Frames::new((frames + 1) * PAGE_SIZE, 2).unwrap())
}

/// Takes a frame on `cpu` and fills it.
fn take(frames: &Frames, cpu: usize) -> Option<u32> {
    run_on(cpu);
    let frame = frames.alloc_one()?;
    // SAFETY: ours alone; loom checks it.
    unsafe { frames.clear(frame) };
    Some(frame)
}

#[test]
fn the_last_frame_goes_from_shard_to_shard() {
    explore(Some(4), || {
        let frames = soft(1);
        let once = |cpu: usize| {
            let frames = Arc::clone(&frames);
            move || {
                if let Some(frame) = take(&frames, cpu) {
                    frames.put(frame);
                }
            }
        };
        let other = spawn(once(1));
        once(0)();
        other.join().unwrap();
        assert!(take(&frames, 0).is_some(), "it was lost");
        assert!(take(&frames, 1).is_none(), "it is there twice");
    });
}

#[test]
fn two_shards_of_two_frames() {
    explore(Some(3), || {
        let frames = soft(2);
        let once = |cpu: usize| {
            let frames = Arc::clone(&frames);
            move || {
                // Where the others' frames are in their hands there may be none.
                if let Some(frame) = take(&frames, cpu) {
                    frames.put(frame);
                }
            }
        };
        let others = [spawn(once(1)), spawn(once(0))];
        once(0)();
        for other in others {
            other.join().unwrap();
        }
        let mut both = [0; 2];
        assert!(frames.alloc(&mut both), "one was lost");
        assert!(both[0] != both[1]);
    });
}

/// Two processors give back more than their shards keep, so batches go to the depot, and take frames from there.
#[test]
fn batches_go_through_the_depot() {
    const EACH: usize = 5;
    explore(Some(4), || {
        let frames = soft(2 * EACH);
        let mut all = [0; 2 * EACH];
        assert!(frames.alloc(&mut all));
        let part = |cpu: usize| {
            let (frames, part) = (Arc::clone(&frames), cpu * EACH..(cpu + 1) * EACH);
            move || {
                run_on(cpu);
                let mut chain = Chain::default();
                for &frame in &all[part] {
                    chain.push(&frames, frame);
                }
                frames.free(chain);
                // More than the own shard keeps. The other's frames may be in its hands.
                [(); 2].map(|()| take(&frames, cpu))
            }
        };
        let other = spawn(part(1));
        let taken = [part(0)(), other.join().unwrap()];
        for frame in taken.into_iter().flatten().flatten() {
            frames.put(frame);
        }
        assert!(frames.alloc(&mut all), "some were lost");
        all.sort_unstable();
        assert!(
            all.windows(2).all(|pair| pair[0] < pair[1]),
            "one is there twice"
        );
        assert!(frames.alloc_one().is_none());
    });
}

#[test]
fn the_last_of_two_references_frees_the_frame() {
    explore(None, || {
        let frames = soft(1);
        let frame = take(&frames, 0).unwrap();
        frames.get(frame);
        let share = |cpu: usize| {
            let frames = Arc::clone(&frames);
            move || {
                run_on(cpu);
                let mut byte = [9];
                // SAFETY: we have a reference, and so nobody reuses it.
                unsafe { frames.load(frame, 0, &mut byte) };
                assert_eq!(byte, [0]);
                frames.put(frame);
                // Its next owner comes after all reads.
                take(&frames, cpu).is_some()
            }
        };
        let other = spawn(share(1));
        let mine = share(0)();
        let got = u32::from(mine) + u32::from(other.join().unwrap());
        assert_eq!(got, 1, "it is free once");
    });
}

#[test]
fn the_last_owner_may_write() {
    apart(|| {
        // Two share a frame since a fork: one gives its reference up, the other
        // finds itself alone and writes in place.
        let alone = Arc::new(AtomicUsize::new(0));
        let all = schedules(None, {
            let alone = Arc::clone(&alone);
            move || {
                let frames = soft(1);
                let frame = take(&frames, 0).unwrap();
                frames.get(frame);
                let writer = {
                    let (frames, alone) = (Arc::clone(&frames), Arc::clone(&alone));
                    spawn(move || {
                        if frames.is_only(frame) {
                            // SAFETY: ours alone; loom checks it.
                            unsafe { frames.clear(frame) };
                            alone.fetch_add(1, Relaxed);
                        }
                    })
                };
                let mut byte = [9];
                // SAFETY: we have a reference.
                unsafe { frames.load(frame, 0, &mut byte) };
                frames.put(frame);
                writer.join().unwrap();
                assert!(frames.is_only(frame));
                frames.put(frame);
            }
        });
        let alone = alone.load(Relaxed);
        assert!(0 < alone && alone < all);
    });
}
