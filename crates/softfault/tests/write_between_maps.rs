//! A call that writes to a map the bytes of another map of the file, however faults arrive. Of a page that is missing the kernel asks while
//! it copies, where it can: nothing may be locked then for which the answer waits.

mod child;
mod each_way;
mod write_scene;

use each_way::alone;
use softfault::UncheckedAdvice;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use write_scene::{PAGE, Scratch, engine, write};

/// Pages of a folio.
const FOLIO: usize = 16;

/// Neither side is in memory, and both are made a hole by another thread meanwhile.
#[test]
fn whole_pages_come_from_pages_that_are_missing() {
    if !alone("whole_pages_come_from_pages_that_are_missing") {
        return;
    }
    const ROUNDS: usize = 2_000;
    let scratch = Scratch::new("between", 8 * FOLIO * PAGE);
    let engine = engine(16 << 20);
    let file = scratch.open();
    let [mut to, from, holes] = [(); 3].map(|()| write(&engine, &file));
    let rounds = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                while rounds.load(Relaxed) < round {
                    thread::yield_now();
                }
                // At any moment of the call.
                (0..round % 64 * 64).for_each(|_| spin_loop());
                let (start, len) = (FOLIO * PAGE, 5 * FOLIO * PAGE);
                // SAFETY: bytes, which may be any.
                let hole =
                    unsafe { holes.unchecked_advise_range(UncheckedAdvice::Remove, start, len) };
                hole.unwrap();
            }
        });
        let _over = softfault_oracle::Finally(|| rounds.store(ROUNDS, Relaxed));
        for _ in 0..ROUNDS {
            rounds.fetch_add(1, Relaxed);
            let bytes = &from[FOLIO * PAGE..3 * FOLIO * PAGE];
            assert_eq!(to.write_at(bytes, 4 * FOLIO * PAGE), Ok(bytes.len()));
        }
    });
    to[0] = 1;
    to.flush().unwrap();
}
