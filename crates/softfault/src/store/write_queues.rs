//! Queues in which pages of files are written past the page cache, many runs at a time.
//!
//! A process has a few for all of its files. Where each file had some, 64 files took all the entries that the system has
//! (`fs.aio-max-nr`), and an engine that was dropped gave the queues back one by one, 30 ms each (`io_destroy(2)`).

use super::ring::{MOST_RUNS, WriteQueue};
use super::write_back::{follows, run_of};
use crate::generation::PerProcess;
use crate::table;
use core::ops::{Deref, DerefMut};
use softfault_engine::PAGE_SIZE;
use softfault_engine::lock::{Mutex, MutexGuard};
use softfault_engine::store::{PageWrite, StoreError};

/// Threads that write many runs at a time: those that evict, which are four at most, and as many that flush.
const QUEUES: usize = 8;

/// A child of fork makes its own: the kernel knows the parent's queues in the parent only. Never dropped.
static OF_PROCESS: PerProcess<WriteQueues> = PerProcess::new();

/// The queues of a process.
#[derive(Debug)]
pub(super) struct WriteQueues {
    /// `None`: not made yet, or the kernel has none for us. Each protected by its mutex.
    queues: [Mutex<Option<Box<Queue>>>; QUEUES],
}

impl Default for WriteQueues {
    fn default() -> Self {
        Self {
            queues: core::array::from_fn(|_| Mutex::new(None)),
        }
    }
}

/// A queue that the caller has for itself.
pub(super) struct FreeQueue<'a>(MutexGuard<'a, Option<Box<Queue>>>);

/// The list of many runs: too large for a handler's stack.
#[derive(Debug)]
pub(super) struct Queue {
    writes: WriteQueue,
    /// Where each run begins, as the number of its first page.
    starts: [u16; MOST_RUNS],
    /// The result of each.
    answers: [i64; MOST_RUNS],
}

impl WriteQueues {
    /// Those of this process. Not for the fault handler: it uses the heap.
    pub(super) fn of_process() -> &'static Self {
        OF_PROCESS.get()
    }

    /// Makes those that are not there yet, as far as the kernel lets us. Not for the fault handler.
    pub(super) fn make(&self) {
        for queue in &self.queues {
            // One that is in use is there.
            let Some(mut queue) = queue.try_lock() else {
                continue;
            };
            if queue.is_none() {
                let Some(writes) = WriteQueue::new() else {
                    return;
                };
                *queue = Some(Box::new(Queue {
                    writes,
                    starts: [0; MOST_RUNS],
                    answers: [0; MOST_RUNS],
                }));
            }
        }
    }

    /// One that nobody uses. Nobody waits for one: a device that hangs keeps those of its writers, and other files are
    /// written to all the same.
    pub(super) fn free(&self) -> Option<FreeQueue<'_>> {
        let taken = self.queues.iter().filter_map(Mutex::try_lock);
        let mut made = taken.filter(|queue| queue.is_some());
        made.next().map(FreeQueue)
    }
}

impl Deref for FreeQueue<'_> {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        self.0.as_deref().expect("it was made")
    }
}

impl DerefMut for FreeQueue<'_> {
    fn deref_mut(&mut self) -> &mut Queue {
        self.0.as_deref_mut().expect("it was made")
    }
}

impl Queue {
    /// Writes pages, and says of each whether the file has got it.
    ///
    /// # Safety
    /// They are readable.
    pub(super) unsafe fn write(&mut self, file: &table::Guarded, pages: &mut [PageWrite]) {
        let Self {
            writes,
            starts,
            answers,
        } = self;
        let mut count = 0;
        for page in 0..pages.len() {
            if page == 0 || !follows(&pages[page - 1], &pages[page]) {
                starts[count] = page as u16;
                count += 1;
            }
        }
        let end = pages.len();
        let starts = &starts[..count];
        let part = |run: usize| {
            let next = starts.get(run + 1).map_or(end, |&next| usize::from(next));
            usize::from(starts[run])..next
        };
        let run = |run| run_of(&pages[part(run)]);
        answers[..count].fill(0);
        // SAFETY: the caller's promise.
        unsafe { writes.write(file, count, run, |run, answer| answers[run] = answer) };
        for (run, &answer) in answers[..count].iter().enumerate() {
            let part = part(run);
            let is_whole = answer == (part.len() * PAGE_SIZE) as i64;
            let result = match is_whole {
                true => Ok(()),
                false => Err(StoreError::Short),
            };
            pages[part].iter_mut().for_each(|page| page.result = result);
        }
    }
}
