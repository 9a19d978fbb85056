//! Memory larger than memory: threads read and write pages of it at random, all
//! alike or by Zipf's law (`Job::theta`), until the time is over. Half of the
//! accesses write. All of it is written once before the clock starts.

use super::gang::{Member, Task};
use super::memory::{self, Memory};
use super::tally::Waited;
use super::zipf::Zipf;
use crate::job::Job;
use crate::random::uniform;
use sync::Arc;

/// The budget.
const MEMORY: u64 = 64 << 20;
/// How many budgets are mapped.
const TIMES: u64 = 4;

/// See [`Job::new`].
pub fn set_sizes(job: &mut Job) {
    job.memory = MEMORY;
    job.region = TIMES * MEMORY;
    job.swap = 2 * job.region;
    job.seconds = 0.1;
}

/// The threads.
pub fn tasks(job: &Job, memory: Arc<Memory>) -> Vec<Task> {
    let zipf = (job.theta > 0.0).then(|| Zipf::new(memory.count(), job.theta));
    let zipf = Arc::new(zipf);
    let seed = job.seed;
    let task = |number| {
        let (memory, zipf) = (memory.clone(), zipf.clone());
        Task {
            name: format!("anon {number}"),
            nice: 0,
            works: true,
            body: Box::new(move |member: &mut Member| {
                for access in 0.. {
                    if member.stopped() {
                        break;
                    }
                    let (word, writes) = memory::draw(seed, number, access);
                    let page = match &*zipf {
                        Some(zipf) => zipf.page(word),
                        None => uniform(word, memory.count()),
                    };
                    member.access(&memory, page, writes, Waited::Touch)?;
                }
                Ok(())
            }),
        }
    };
    (0..job.threads).map(task).collect()
}
