//! Mapping against faulting: some threads (`Job::mappers`) map a small file
//! each, touch its first page and unmap it, all the time; the others touch
//! uniformly random pages of a large file that stays mapped.

use super::gang::{Member, Task};
use super::tally::Waited;
use crate::job::Job;
use crate::outcome::Trouble;
use crate::random::{mix, uniform};
use crate::rig::FileMap;
use softfault_engine::lock::Mutex;
use sync::Arc;

/// Bytes of the large file, a quarter of the size in the document's lab.
const FILE: u64 = 1 << 30;
/// Bytes of a small one.
const SMALL: u64 = 64 << 10;

/// See [`Job::new`].
pub fn set_sizes(job: &mut Job) {
    job.file = FILE;
    job.memory = FILE / 4;
    job.seconds = 0.2;
}

/// Whether there are both kinds of threads.
pub fn check(job: &Job) -> Result<(), Trouble> {
    match job.mappers < job.threads {
        true => Ok(()),
        false => Err(Trouble::Job(format!(
            "{} of {} threads map: none is left to touch",
            job.mappers, job.threads
        ))),
    }
}

/// The large file, and one for each thread that maps.
pub fn files(job: &Job) -> Vec<u64> {
    let small = vec![SMALL; job.mappers];
    [vec![job.file], small].concat()
}

/// The threads.
pub fn tasks(job: &Job) -> Vec<Task> {
    let large: Arc<Mutex<Option<Arc<FileMap>>>> = Arc::new(Mutex::new(None));
    let seed = job.seed;
    let mapper = |number| Task {
        name: format!("storm mapper {number}"),
        nice: 0,
        works: true,
        body: Box::new(move |member: &mut Member| maps(member, number + 1)),
    };
    let toucher = |number| {
        let large = large.clone();
        Task {
            name: format!("storm {number}"),
            nice: 0,
            works: true,
            body: Box::new(move |member: &mut Member| {
                let map = {
                    let mut large = large.lock();
                    match &*large {
                        Some(map) => map.clone(),
                        None => large.insert(Arc::new(member.rig.map_file(0)?)).clone(),
                    }
                };
                drop(large);
                touches(member, &map, mix(seed ^ mix(number as u64)))?;
                // The last one out gives it back.
                if let Some(map) = Arc::into_inner(map) {
                    member.rig.unmap_file(map);
                }
                Ok(())
            }),
        }
    };
    let mappers = (0..job.mappers).map(mapper);
    let touchers = (job.mappers..job.threads).map(toucher);
    mappers.chain(touchers).collect()
}

fn touches(member: &mut Member, map: &FileMap, seed: u64) -> Result<(), String> {
    for access in 0.. {
        if member.stopped() {
            break;
        }
        let page = uniform(mix(seed ^ access), map.pages());
        member.touch(map, page, Waited::Touch)?;
    }
    Ok(())
}

fn maps(member: &mut Member, number: usize) -> Result<(), String> {
    while !member.stopped() {
        let map = member.timed(Waited::Map, |member| member.rig.map_file(number))?;
        member.touch(&map, 0, Waited::Touch)?;
        member.timed(Waited::Unmap, |member| member.rig.unmap_file(map));
        member.tally.rounds += 1;
    }
    Ok(())
}
