//! Document 001's program: map a file of huge pages, touch a byte of each, unmap, for
//! ever. Each thread has a space of its own, and all map the same file.
//!
//! They begin spread over the length of a round, or at one moment (`Job::together`), and
//! go where the locks let them: nothing holds them together or apart afterwards, as
//! nothing does the document's programs. The file has all its
//! pages before (`Job::populated`), as it has in the document after the first round:
//! faults find leaf tables missing, and entries in those that no other space had.
//!
//! At first another space, which has populated the file, still maps it; after a quarter of
//! the time it unmaps, and counting begins. Threads that are spread keep each leaf alive
//! from then on. Where all are in step the last one drops them, and in the next round
//! each page's fault is a race of all: they stay in step for long, which is another
//! thing to measure.
//!
//! The document measured intervals of ten seconds, and the longest wait over two hours;
//! here it is some rounds of each thread.

use super::gang::{Member, Task};
use super::tally::Waited;
use crate::job::Job;
use crate::outcome::Trouble;
use crate::rig::{HUGE, Huge, HugeMap, HugeSpace, Rig};
use crate::world;

/// The file.
const FILE: u64 = 250 << 30;
/// The part of the time that is not counted.
const WARM_UP: u64 = 4;
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
    let first = job.populated.then(|| populate(rig)).transpose()?;
    let warm_up_ns = job.duration_ns() / WARM_UP;
    let spaces = (0..job.threads).map(|_| rig.huge_space());
    let spaces: Vec<HugeSpace> = spaces.collect::<Result<_, _>>()?;
    let (threads, together) = (job.threads as u64, job.together);
    let task = |(number, space): (usize, HugeSpace)| Task {
        name: format!("hugetlb {number}"),
        nice: 0,
        works: true,
        body: Box::new(move |member: &mut Member| {
            let late = huge_of(&member.rig).round_ns() * number as u64 / threads;
            if !together {
                world::sleep_until_ns(world::now_ns() + late);
            }
            rounds(member, space)
        }),
    };
    let mut tasks: Vec<Task> = spaces.into_iter().enumerate().map(task).collect();
    tasks.extend(first.map(|(space, map)| Task {
        name: "populated".to_owned(),
        nice: 0,
        works: false,
        body: Box::new(move |member| {
            world::sleep_until_ns(world::now_ns() + warm_up_ns);
            let rig = member.rig.clone();
            let huge = huge_of(&rig);
            huge.mark();
            space.unmap(huge, map);
            space.exit();
            Ok(())
        }),
    }));
    Ok(tasks)
}

/// By a space that keeps it mapped.
fn populate(rig: &Rig) -> Result<(HugeSpace, HugeMap), String> {
    let huge = huge_of(rig);
    let space = rig.huge_space()?;
    let map = space.map(huge)?;
    for page in 0..huge.pages() {
        space.touch(huge, &map, page)?;
    }
    Ok((space, map))
}

fn huge_of(rig: &Rig) -> &Huge {
    rig.huge.as_ref().expect("of this workload")
}

fn rounds(member: &mut Member, space: HugeSpace) -> Result<(), String> {
    let rig = member.rig.clone();
    let huge = huge_of(&rig);
    let mut counted = huge.counts();
    while !member.stopped() {
        let map = member.timed(Waited::Map, |_| space.map(huge))?;
        for page in 0..huge.pages() {
            if member.stopped() {
                break;
            }
            if !counted && huge.counts() {
                counted = true;
                member.tally.cpu_before_ns = world::cpu_ns();
            }
            member.timed(Waited::Touch, |_| space.touch(huge, &map, page))?;
            member.tally.touches += u64::from(huge.counts());
        }
        let tables = &mut member.tally.table_bytes;
        *tables = (*tables).max(huge.table_bytes());
        let whole = !member.stopped();
        member.timed(Waited::Unmap, |_| space.unmap(huge, map));
        member.tally.rounds += u64::from(whole && huge.counts());
    }
    if !counted {
        member.tally.cpu_before_ns = world::cpu_ns();
    }
    space.exit();
    Ok(())
}
