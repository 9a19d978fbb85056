//! Document 000's reproducer: N threads, each of which maps a file of its own, touches every page, unmaps
//! and begins again, until the time is over; the round in hand is finished. `pread` reads the same bytes
//! 128 KiB at once.

use super::super::reader::{Buffer, Source};
use super::{Bench, gang};
use std::sync::Mutex;

/// The threads are many: small stacks, as such programs have.
const STACK: usize = 64 << 10;
/// Pages that pread reads, and that are counted, at once.
const RUN_PAGES: u64 = 32;

/// Runs rounds until the time is over. Files are opened before the clock starts, as the document's are.
pub fn run(bench: &Bench) -> Result<(), String> {
    let open = |number| bench.open(number).map(Mutex::new);
    let sources = (0..bench.job.threads).map(open);
    let sources: Vec<Mutex<Source>> = sources.collect::<Result<_, _>>()?;
    gang::measure(bench, STACK, Some(bench.job.seconds), |member| {
        let mut source = sources[member.number].lock().expect("one thread a file");
        let mut buffer = Buffer::default();
        while !member.stopped() {
            source.map(bench.engine)?;
            let mut reader = source.reader(&mut buffer);
            let pages = source.pages();
            for first in (0..pages).step_by(RUN_PAGES as usize) {
                let run = first..(first + RUN_PAGES).min(pages);
                let count = run.end - run.start;
                reader.touch_all(run, RUN_PAGES)?;
                member.count(count);
            }
            source.unmap();
            member.count_round();
        }
        Ok(())
    })
}
