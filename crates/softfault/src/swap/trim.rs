//! The thread that gives space of the file back.
//!
//! Giving back takes the file system's journal, and may take as long as a disk's
//! write cache to be flushed: nothing for a fault to wait for. What is empty for a
//! moment only is left as it is.

use super::clusters::Clusters;
use crate::signal;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// How long a cluster is left to be used again.
const CALM_NS: u64 = 500_000_000;

/// The thread; ends when this is dropped.
pub(super) struct Trimmer {
    clusters: Arc<Clusters>,
    /// `None` where the system has no thread for us: space is then given back
    /// when the file is closed.
    thread: Option<JoinHandle<()>>,
    /// The process that the thread is in.
    process: u32,
}

impl Trimmer {
    pub(super) fn new(clusters: Arc<Clusters>) -> Self {
        // The thread inherits the mask: the program's signals are not for it.
        let _masked = signal::masked();
        let work = clusters.clone();
        let thread = Builder::new().name("softfault-trim".to_owned());
        let thread = thread.spawn(move || {
            while work.wait_for_work() && work.wait_for_calm(CALM_NS) {
                work.trim();
            }
        });
        Self {
            clusters,
            thread: thread.ok(),
            process: std::process::id(),
        }
    }
}

impl Trimmer {
    /// No thread.
    pub(super) fn none(clusters: Arc<Clusters>) -> Self {
        Self {
            clusters,
            thread: None,
            process: std::process::id(),
        }
    }
}

impl Drop for Trimmer {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if self.process != std::process::id() {
            // It is in the process that this one was forked from.
            core::mem::forget(thread);
            return;
        }
        self.clusters.stop();
        let _ = thread.join();
    }
}
