//! The frames of soft page tables, as threads take and free them.

use softfault_engine::PAGE_SIZE;
use softfault_engine::mmu::soft::chain::Chain;
use softfault_engine::mmu::soft::frames::Frames;
use std::collections::BTreeSet;
use std::sync::Mutex;

#[test]
fn a_frame_has_one_owner_at_a_time() {
    const THREADS: usize = 4;
    const PAGES: usize = 300;
    let frames = Frames::new((PAGES + 1) * PAGE_SIZE, 3).unwrap();
    let owned = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (frames, owned) = (&frames, &owned);
            scope.spawn(move || {
                for round in 0..400 {
                    let mut taken = vec![0; 1 + (round * 7 + thread) % 60];
                    if !frames.alloc(&mut taken) {
                        continue;
                    }
                    for &frame in &taken {
                        assert!(owned.lock().unwrap().insert(frame));
                    }
                    for &frame in &taken {
                        assert!(owned.lock().unwrap().remove(&frame));
                    }
                    if round % 2 == 0 {
                        taken.iter().for_each(|&frame| frames.put(frame));
                    } else {
                        let mut chain = Chain::default();
                        taken.iter().for_each(|&frame| chain.push(frames, frame));
                        frames.free(chain);
                    }
                }
            });
        }
    });
    let mut all = vec![0; PAGES];
    assert!(frames.alloc(&mut all), "none was lost");
    assert_eq!(BTreeSet::from_iter(all.iter().copied()).len(), PAGES);
    assert_eq!(frames.alloc_one(), None);
    // The last of two references frees it.
    frames.get(all[0]);
    frames.put(all[0]);
    assert_eq!(frames.alloc_one(), None);
    frames.put(all[0]);
    assert_eq!(frames.alloc_one(), Some(all[0]));
}

#[test]
fn a_thread_takes_blocks_that_another_freed() {
    const SHARDS: usize = 2;
    const PAGES: usize = 1000;
    let frames = Frames::new(100 * PAGES * PAGE_SIZE, SHARDS).unwrap();
    // Shards are chosen by processor: threads come to several of them.
    for _ in 0..20 {
        std::thread::scope(|scope| {
            let mut taken = vec![0; PAGES];
            assert!(frames.alloc(&mut taken));
            let frames = &frames;
            scope.spawn(move || {
                let mut chain = Chain::default();
                taken.iter().for_each(|&frame| chain.push(frames, frame));
                frames.free(chain);
            });
        });
    }
    // Frames that shards keep, and fresh ones that they took and have not used.
    let slack = SHARDS * 3 * 32;
    assert!(frames.used() <= PAGES + slack, "{}", frames.used());
}
