//! Files whose rest is brought into the page cache, one after the other.
//!
//! Each by a thread of its own: it waits for the device, which may be slow, or hang, while the thread that watches the windows goes on
//! to look at memory (`pressure.rs`), and an engine that is dropped waits for neither.

use super::served::Served;
use crate::store::{FileStore, Fill, ReadPolicy};
use crate::thread::{self, Thread};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

/// The files, in their order.
#[derive(Default)]
pub(super) struct Fills(VecDeque<Filling>);

struct Filling {
    served: Weak<Served>,
    /// The first one's, once it has begun. Its thread has the other reference.
    fill: Option<Arc<Fill>>,
}

impl Fills {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a window's file, once.
    pub(super) fn add(&mut self, served: &Arc<Served>) {
        if !self.0.iter().any(|filling| filling.is_of(served)) {
            self.0.push_back(Filling {
                served: Arc::downgrade(served),
                fill: None,
            });
        }
    }

    /// Begins with the next file, if none is being filled; a window whose file has been filled since the last time, if there is one.
    pub(super) fn go_on(&mut self, policy: &Arc<ReadPolicy>) -> Option<Arc<Served>> {
        while let Some(first) = self.0.front_mut() {
            let served = first.served.upgrade();
            let file = served.as_ref().and_then(|served| served.shown_file());
            let has_thread = match &mut first.fill {
                // Only the thread's end leaves this the only reference.
                Some(fill) => Arc::get_mut(fill).is_none(),
                None => file.is_some_and(|file| {
                    let fill = first.fill.insert(Arc::default()).clone();
                    start(Arc::downgrade(file), fill, policy.clone()).is_ok()
                }),
            };
            if has_thread {
                return None;
            }
            let is_filled = first.fill.as_ref().is_some_and(|fill| fill.is_done());
            self.0.pop_front();
            if is_filled && served.is_some() {
                return served;
            }
        }
        None
    }

    /// Ends those of windows that are not `wanted`.
    pub(super) fn keep(&mut self, wanted: impl Fn(&Arc<Served>) -> bool) {
        self.0.retain(|filling| {
            filling
                .served
                .upgrade()
                .is_some_and(|served| wanted(&served))
        });
    }
}

/// Starts the thread that brings a file in, and rings when it has ended.
fn start(file: Weak<FileStore>, fill: Arc<Fill>, policy: Arc<ReadPolicy>) -> io::Result<Thread> {
    let bring_in = move || {
        FileStore::bring_in(&file, &fill);
        drop(fill);
        policy.bell.ring();
    };
    thread::start(c"softfault-fill", thread::STACK, bring_in)
}

impl Filling {
    fn is_of(&self, served: &Arc<Served>) -> bool {
        self.served.as_ptr() == Arc::as_ptr(served)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if let Some(fill) = &self.fill {
            fill.stop();
        }
    }
}
