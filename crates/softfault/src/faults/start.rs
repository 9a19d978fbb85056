//! From when on faults of this process are served, and why they cannot be.

use super::handler::install;
use super::pool::ServingThreads;
use crate::error;
use crate::huge_faults::HugeStats;
use crate::process::{self, Process};
use crate::uffd::Faults;
use softfault_engine::policy::SpaceLocks;
use std::io;

/// Why there is no process's part for an engine.
#[derive(Debug)]
pub(crate) enum NoProcess {
    /// The kernel refuses userfaultfd, with this errno.
    Closed(i32),
    /// It was made for an engine with these other locks: the process has one
    /// address space, with one kind of each.
    OtherLocks(SpaceLocks),
    /// It was made for an engine whose faults arrive this other way.
    OtherFaults(Faults),
    /// No thread can be started to serve faults.
    NoThread(io::Error),
}

impl From<NoProcess> for io::Error {
    fn from(no: NoProcess) -> Self {
        match no {
            NoProcess::OtherLocks(made) => {
                let message = format!(
                    "an earlier engine of this process has the locks `{made}`: all engines of a process need the same"
                );
                io::Error::new(io::ErrorKind::InvalidInput, message)
            }
            NoProcess::Closed(errno) => error::closed(errno),
            NoProcess::OtherFaults(made) => error::invalid(match made {
                Faults::Signals => {
                    "an earlier engine of this process has faults by signals: all engines of a process need the same"
                }
                Faults::Threads => {
                    "an earlier engine of this process has faults by threads: all engines of a process need the same"
                }
                Faults::Messages => {
                    "an earlier engine of this process has faults by messages: all engines of a process need the same"
                }
            }),
            NoProcess::NoThread(why) => why,
        }
    }
}

/// Makes the process's part at the first call, with these locks and faults that
/// arrive this way. Forks are prepared for already: there is something then that a child must not have.
pub(crate) fn get_or_make(
    locks: SpaceLocks,
    faults: Faults,
) -> Result<&'static Process, NoProcess> {
    let _making = process::making();
    if let Some(process) = process::get() {
        let made = process.space().mmap_lock().locks();
        if made != locks.effective() {
            return Err(NoProcess::OtherLocks(made));
        }
        let same = process.faults() == faults;
        let other = NoProcess::OtherFaults(process.faults());
        return same.then_some(process).ok_or(other);
    }
    let process = make(locks, faults)?;
    // Before there is a window to fault in.
    if faults == Faults::Signals {
        install();
    }
    process::set(Some(process));
    Ok(process)
}

/// A part of a process's own, that nobody knows yet but the threads that serve its faults.
pub(crate) fn make(locks: SpaceLocks, faults: Faults) -> Result<&'static Process, NoProcess> {
    let made = Box::into_raw(Process::new(locks, faults).map_err(NoProcess::Closed)?);
    // SAFETY: dropped below only, where nobody has it.
    let process: &'static Process = unsafe { &*made };
    if faults.by_threads()
        && let Err(error) = ServingThreads::start(process)
    {
        // SAFETY: there is no thread that has it. Its descriptors and mappings go, so that a program may try again at any time.
        drop(unsafe { Box::from_raw(made) });
        return Err(NoProcess::NoThread(error));
    }
    Ok(process)
}

/// Touches that could not be served and raised SIGBUS, in the whole process: of maps, and of huge memory.
pub(crate) fn failed_touches() -> u64 {
    process::failed_touches() + HugeStats::now().failed
}
