//! Document 000's reproducer: N threads, each of which maps a file of its own, touches every page, unmaps
//! and begins again, until the time is over; the round in hand is finished. `pread` reads the same bytes
//! 128 KiB at once.

use super::super::reader::{Buffer, Source};
use super::{Bench, gang};
use std::sync::Mutex;

/// The threads are many: small stacks, as such programs have.
const STACK: usize = 64 << 10;
/// Pages that pread reads at once.
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
            let all = 0..source.pages();
            let mut reader = source.reader(&mut buffer);
            reader.touch_all(all, RUN_PAGES, || member.count(1))?;
            source.unmap();
            member.count_round();
        }
        Ok(())
    })
}
