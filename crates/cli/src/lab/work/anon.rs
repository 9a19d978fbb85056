//! Memory larger than memory: threads read and write 8 bytes at random places of anonymous pages, uniformly or
//! by Zipf's law, until the time is over. Every read is checked, whatever another thread is writing there, and
//! once the clock has stopped all pages.

use super::super::job::Memory;
use super::{Bench, STACK, gang};
use crate::results::row::Waited;
use softfault::clock::now_ns;

/// Accesses until the time is over; the memory is populated before the clock starts.
pub fn run(bench: &Bench, memory: Memory) -> Result<(), String> {
    let mapped = bench.map_anonymous(memory.bytes)?;
    let pages = bench.populated(&*mapped, memory.pages())?;
    let accesses = memory.accesses(bench.job.seed);
    gang::measure(bench, STACK, Some(bench.job.seconds), |member| {
        let mut since = now_ns();
        for number in 0.. {
            // One touch at least, however short the run.
            if number > 0 && member.stopped() {
                break;
            }
            let access = accesses.at(member.number, number);
            match access.writes {
                true => pages.write(access.page)?,
                false => pages.read(access.page, access.word)?,
            }
            member.lap(Waited::Touch, &mut since);
            member.count(1);
        }
        Ok(())
    })?;
    bench.swept(&pages)
}
