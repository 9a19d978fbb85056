//! Threads that borrow, in every world.

use sync::thread::{JoinHandle, spawn};

/// Those that have not been waited for. They borrow, so nobody goes on before
/// they have ended.
struct Running(Vec<JoinHandle<()>>);

impl Running {
    fn join(&mut self) -> Result<(), Box<dyn core::any::Any + Send>> {
        let mut all = Ok(());
        for thread in self.0.drain(..) {
            all = all.and(thread.join());
        }
        all
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A panic meanwhile has been reported.
        let _first = self.join();
    }
}

/// Runs each of `jobs` in a thread of its own, and returns when all have ended.
///
/// # Panics
/// If one of them does.
pub fn together<'env, F: FnOnce() + Send + 'env>(jobs: impl IntoIterator<Item = F>) {
    let mut running = Running(Vec::new());
    for job in jobs {
        let job: Box<dyn FnOnce() + Send + 'env> = Box::new(job);
        // SAFETY: a job ends before `'env` does: `running` waits for all of
        // them, also while it unwinds.
        let job: Box<dyn FnOnce() + Send + 'static> = unsafe { core::mem::transmute(job) };
        running.0.push(spawn(job));
    }
    if let Err(panic) = running.join() {
        std::panic::resume_unwind(panic);
    }
}
