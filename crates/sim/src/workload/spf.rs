//! Mapping-heavy: every thread maps a little anonymous memory, touches a few of
//! its pages and unmaps it, until the time is over.

use super::gang::{Member, Task};
use super::tally::Waited;
use crate::job::{Job, PAGE};

/// Pages touched of each mapping, evenly apart.
const TOUCHED: u64 = 4;
/// The budget: as good as none.
const MEMORY: u64 = 8 << 30;
/// Bytes of a mapping.
const REGION: u64 = 64 << 10;

/// See [`Job::new`].
pub fn set_sizes(job: &mut Job) {
    job.region = REGION;
    job.memory = MEMORY;
}

/// The threads.
pub fn tasks(job: &Job) -> Vec<Task> {
    let pages = job.region / PAGE;
    let task = |number| Task {
        name: format!("spf {number}"),
        nice: 0,
        works: true,
        body: Box::new(move |member| maps(member, pages)),
    };
    (0..job.threads).map(task).collect()
}

fn maps(member: &mut Member, pages: u64) -> Result<(), String> {
    let touched = TOUCHED.min(pages);
    let bytes = pages * PAGE;
    // One mapping at least, however short the run.
    for round in 0.. {
        if round > 0 && member.stopped() {
            break;
        }
        let map = member.timed(Waited::Map, |member| member.rig.map_anonymous(bytes))?;
        for number in 0..touched {
            let addr = map.start() + (number * pages / touched * PAGE) as usize;
            let written = member.timed(Waited::Touch, |member| {
                member.rig.write(&mut member.view, addr, round + 1)
            });
            let word = written.and_then(|()| member.rig.read(&mut member.view, addr));
            let next = word.and_then(|word| {
                let next = member.rig.read(&mut member.view, addr + 8)?;
                Ok((word, next))
            });
            let found = next.map_err(|error| format!("cannot use a page: {error:?}"))?;
            if found != (round + 1, 0) {
                return Err(format!("wrong data in anonymous memory: {found:?}"));
            }
            member.tally.touches += 1;
        }
        member.timed(Waited::Unmap, |member| member.rig.unmap_anonymous(map));
        member.tally.rounds += 1;
    }
    Ok(())
}
