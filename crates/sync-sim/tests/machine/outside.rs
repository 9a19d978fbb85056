//! Outside a machine the items are plain ones, and memory may cross over.

use crate::program::bare;
use softfault_sync_sim as sync;
use std::sync::Arc;
use sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use sync::machine::{self, Config};
use sync::wait::WaitWord;

#[test]
fn atomics_are_atomics() {
    let number = AtomicU32::new(5);
    assert_eq!(number.fetch_sub(2, AcqRel), 5);
    assert_eq!(number.compare_exchange(3, 9, AcqRel, Acquire), Ok(3));
    assert_eq!(number.compare_exchange(3, 1, AcqRel, Acquire), Err(9));
    let twice = |value: u32| (value < 10).then_some(value * 2);
    assert_eq!(number.fetch_update(AcqRel, Acquire, twice), Ok(9));
    assert_eq!(number.fetch_update(AcqRel, Acquire, twice), Err(18));
    assert_eq!(number.into_inner(), 18);
    assert!(!AtomicBool::default().swap(true, AcqRel));
    assert!(AtomicPtr::<u8>::default().load(Acquire).is_null());
}

#[test]
fn threads_and_words_are_real_ones() {
    let word = Arc::new(WaitWord::new(0));
    let other = word.clone();
    let thread = sync::thread::spawn(move || {
        while other.load(Acquire) == 0 {
            other.wait(0, None);
        }
        7
    });
    word.swap(1, Release);
    word.wake(1);
    assert_eq!(thread.join().expect("it ends"), 7);
    let page = sync::pages::map(4096).expect("memory");
    // SAFETY: ours.
    unsafe { sync::pages::unmap(page, 4096) };
}

#[test]
fn the_result_of_a_run_outlives_it() {
    let before = vec![1_u64; 1000];
    let ran = machine::run(Config::new(bare(1), 1, 0), || {
        // Freed inside, made outside; and the other way round.
        drop(before);
        let word = Arc::new(AtomicU64::new(3));
        (word, vec![2_u64; 100_000])
    });
    let (word, mut vector) = ran.expect("it ends").0;
    machine::run(Config::new(bare(1), 1, 0), || drop(vec![9_u64; 100_000])).expect("it ends");
    vector.push(2);
    assert!(vector.iter().all(|&value| value == 2));
    let other = word.clone();
    std::thread::spawn(move || other.fetch_add(1, Relaxed))
        .join()
        .expect("it ends");
    assert_eq!(word.load(Relaxed), 4);
    let joined = machine::run(Config::new(bare(1), 1, 0), || word.load(Relaxed));
    assert_eq!(joined.expect("it ends").0, 4);
}

#[test]
fn machines_run_side_by_side() {
    let start = |seed| std::thread::spawn(move || crate::program::mixture(seed, false).digest);
    let threads: Vec<_> = (0..6).map(|run| start(run / 3)).collect();
    let digests: Vec<u64> = (threads.into_iter())
        .map(|thread| thread.join().expect("it ends"))
        .collect();
    assert!(digests[..3].iter().all(|&digest| digest == digests[0]));
    assert!(digests[3..].iter().all(|&digest| digest == digests[3]));
    assert_ne!(digests[0], digests[3]);
}
