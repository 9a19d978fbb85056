//! The thread that gives space of the file back.
//!
//! Giving back takes the file system's journal, and may take as long as a disk's
//! write cache to be flushed: nothing for a fault to wait for. It waits for half a second from the first part that was
//! freed on, so that space which is soon used again is kept, most of the time.

use super::clusters::Clusters;
use crate::generation::Owner;
use crate::thread::{self, Thread};
use std::sync::Arc;

/// How long the first cluster of a round is left to be used again; later ones of the round less.
const CALM_NS: u64 = 500_000_000;

/// The thread; ends when this is dropped.
pub(super) struct Trimmer {
    clusters: Arc<Clusters>,
    /// `None` where the system has no thread for us: space is then given back
    /// when the file is closed.
    thread: Option<Thread>,
    /// The process that the thread is in.
    owner: Owner,
}

impl Trimmer {
    pub(super) fn new(clusters: Arc<Clusters>) -> Self {
        let work = clusters.clone();
        let trim = move || {
            while work.wait_for_work() && work.wait_for_calm(CALM_NS) {
                work.trim();
            }
        };
        let thread = thread::start(c"softfault-trim", thread::STACK, trim);
        Self {
            clusters,
            thread: thread.ok(),
            owner: Owner::here(),
        }
    }
}

impl Trimmer {
    /// No thread.
    pub(super) fn none(clusters: Arc<Clusters>) -> Self {
        Self {
            clusters,
            thread: None,
            owner: Owner::here(),
        }
    }
}

impl Drop for Trimmer {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if self.owner != Owner::here() {
            // It is in the process that this one was forked from.
            core::mem::forget(thread);
            return;
        }
        self.clusters.stop();
        thread.join();
    }
}
