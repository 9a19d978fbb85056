//! Work that is done once, in a process and in all its children.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const NOBODY: u32 = 0;
const DONE: u32 = u32::MAX;

/// Unlike `Once`, which a child waits for in vain if another thread of its parent's was at it when it forked: the
/// child does it, then. So it may be done twice there, and must be such that this is no harm.
#[derive(Debug, Default)]
pub struct Done {
    /// [`NOBODY`], the number of the process of which a thread is at it, or [`DONE`].
    by: AtomicU32,
}

impl Done {
    /// Nobody has done it yet.
    pub const fn new() -> Self {
        Self {
            by: AtomicU32::new(NOBODY),
        }
    }

    /// Does it, if nobody has; it is done when this returns.
    pub fn once(&self, act: impl FnOnce()) {
        // Acquire pairs with the Release below.
        if self.by.load(Acquire) == DONE {
            return;
        }
        let process = std::process::id();
        loop {
            match self.by.load(Acquire) {
                DONE => return,
                // Another thread of this process.
                by if by == process => std::thread::yield_now(),
                by => {
                    let taken = self.by.compare_exchange(by, process, Acquire, Relaxed);
                    if taken.is_ok() {
                        act();
                        return self.set();
                    }
                }
            }
        }
    }

    /// It is done, as is known otherwise.
    pub fn set(&self) {
        self.by.store(DONE, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;

    #[test]
    fn it_is_done_once_and_awaited() {
        static IT: Done = Done::new();
        static TIMES: AtomicUsize = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    IT.once(|| {
                        std::thread::yield_now();
                        TIMES.fetch_add(1, Relaxed);
                    });
                    assert_eq!(TIMES.load(Relaxed), 1);
                });
            }
        });
    }

    /// Failed before, with `Once`: the child waited for a thread that it has not.
    #[test]
    fn a_child_repeats_its_parents_call() {
        let it = Done::new();
        it.by.store(std::process::id() + 1, Relaxed);
        let mut done = false;
        it.once(|| done = true);
        assert!(done);
        it.once(|| unreachable!("it is done"));
    }
}
