//! Document 000's reproducer: N threads, each of which maps a file of its own,
//! touches every page, unmaps and begins again, under a budget that holds an
//! eighth of the files.
//!
//! The document's has 500 threads on 256 CPUs, files of 16 MiB and a memory
//! cgroup of 1 GiB, for ten minutes; `seconds` are fewer here, and a round in
//! hand when they are over does not count. Its files are holes, and so are these
//! (`Job::holes`): no disk is in the way. With data all policies come to the
//! same where all threads wait for the disk.

use super::gang::{Member, Task};
use super::tally::Waited;
use crate::job::Job;

/// Bytes of a file.
const FILE: u64 = 16 << 20;
/// The budget.
const MEMORY: u64 = 1 << 30;

/// See [`Job::new`].
pub fn set_sizes(job: &mut Job) {
    job.file = FILE;
    job.memory = MEMORY;
    job.holes = true;
    job.seconds = 0.5;
}

/// A file a thread.
pub fn files(job: &Job) -> Vec<u64> {
    vec![job.file; job.threads]
}

/// The threads.
pub fn tasks(job: &Job) -> Vec<Task> {
    let task = |number| Task {
        name: format!("thrash {number}"),
        nice: 0,
        works: true,
        body: Box::new(move |member| rounds(member, number)),
    };
    (0..job.threads).map(task).collect()
}

fn rounds(member: &mut Member, number: usize) -> Result<(), String> {
    while !member.stopped() {
        let map = member.timed(Waited::Map, |member| member.rig.map_file(number))?;
        let mut whole = true;
        for page in 0..map.pages() {
            if member.stopped() {
                whole = false;
                break;
            }
            member.touch(&map, page, Waited::Touch)?;
        }
        member.timed(Waited::Unmap, |member| member.rig.unmap_file(map));
        member.tally.rounds += u64::from(whole);
    }
    Ok(())
}
