//! Document 001's program: map a file of huge pages, touch a byte of each, unmap, for
//! ever. Each thread has a space of its own, and all map the same file.
//!
//! All begin at one moment and go where the locks let them: nothing holds them together
//! or apart afterwards, as nothing does the document's programs.
//! The file has all its pages before that (`Job::populated`), as it has in the document
//! after the first round: what faults find missing are leaf tables, and entries in those
//! that nobody else had.
//!
//! The document measured intervals of ten seconds, and the longest wait over two hours;
//! here it is some rounds of each thread.

use super::gang::{Member, Task};
use super::tally::Waited;
use crate::job::Job;
use crate::outcome::Trouble;
use crate::rig::{HUGE, HugeSpace, Rig};

/// The file.
const FILE: u64 = 250 << 30;
/// Of everything else.
const MEMORY: u64 = 8 << 20;

/// See [`Job::new`].
pub fn set_sizes(job: &mut Job) {
    job.memory = MEMORY;
    job.file = FILE;
    job.seconds = 0.1;
}

/// Whether there is a file of whole pages.
pub fn check(job: &Job) -> Result<(), Trouble> {
    let bytes = job.file;
    match bytes > 0 && bytes.is_multiple_of(HUGE as u64) {
        true => Ok(()),
        false => Err(Trouble::Job(format!(
            "a huge file of {bytes} bytes: no whole pages of 2 MiB"
        ))),
    }
}

/// The threads.
pub fn tasks(job: &Job, rig: &Rig) -> Result<Vec<Task>, String> {
    if job.populated {
        populate(rig)?;
    }
    let spaces = (0..job.threads).map(|_| rig.huge_space());
    let spaces: Vec<HugeSpace> = spaces.collect::<Result<_, _>>()?;
    let task = |(number, space): (usize, HugeSpace)| Task {
        name: format!("hugetlb {number}"),
        nice: 0,
        works: true,
        body: Box::new(move |member: &mut Member| rounds(member, space)),
    };
    Ok(spaces.into_iter().enumerate().map(task).collect())
}

/// By a space that is gone afterwards.
fn populate(rig: &Rig) -> Result<(), String> {
    let huge = rig.huge.as_ref().expect("of this workload");
    let space = rig.huge_space()?;
    let map = space.map(huge)?;
    for page in 0..huge.pages() {
        space.touch(huge, &map, page)?;
    }
    space.unmap(huge, map);
    space.exit();
    Ok(())
}

fn rounds(member: &mut Member, space: HugeSpace) -> Result<(), String> {
    let rig = member.rig.clone();
    let huge = rig.huge.as_ref().expect("of this workload");
    while !member.stopped() {
        let map = member.timed(Waited::Map, |_| space.map(huge))?;
        for page in 0..huge.pages() {
            if member.stopped() {
                break;
            }
            member.timed(Waited::Touch, |_| space.touch(huge, &map, page))?;
            member.tally.touches += 1;
        }
        let tables = &mut member.tally.table_bytes;
        *tables = (*tables).max(huge.table_bytes());
        let whole = !member.stopped();
        member.timed(Waited::Unmap, |_| space.unmap(huge, map));
        member.tally.rounds += u64::from(whole);
    }
    space.exit();
    Ok(())
}
