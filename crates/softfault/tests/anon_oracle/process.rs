//! One space: a process's memory, and how it forks.

use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::places::Way;
use crate::softfault_side::Softfault;
use crate::wire::{Answer, Request, Verb, to_numbers, to_plans};
use softfault_oracle::{Access, MemoryVerb, Paid, obey_plans};
use std::io;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;

/// Threads that touch pages while the process forks.
const READERS: usize = 2;

/// A process's memory: the same on both sides.
pub struct Process {
    pub softfault: Softfault,
    pub kernel: Kernel,
}

/// The process that goes on after a fork.
pub enum Forked {
    Parent,
    Child,
}

impl Process {
    pub fn side(&self, side: usize) -> &dyn Memory {
        match side {
            0 => &self.softfault,
            _ => &self.kernel,
        }
    }

    fn side_mut(&mut self, side: usize) -> &mut dyn Memory {
        match side {
            0 => &mut self.softfault,
            _ => &mut self.kernel,
        }
    }

    pub fn way(&self, side: usize) -> Box<dyn Access + '_> {
        Box::new(Way(self.side(side).places()))
    }

    /// Does the operations that need no other process.
    pub fn obey(&mut self, request: &Request) -> Answer {
        let Request {
            verb, side, more, ..
        } = *request;
        let range = request.range.clone();
        let memory = self.side_mut(side);
        match verb {
            Verb::MapZeros => return Answer::Mapped(memory.map(range, None)),
            Verb::MapCopy => return Answer::Mapped(memory.map(range, Some(more))),
            Verb::Unmap => memory.unmap(range),
            Verb::MakeReadOnly => memory.set_writable(range, false),
            Verb::MakeMut => memory.set_writable(range, true),
            Verb::Resize => memory.resize(range, more),
            Verb::Manage => return Answer::Expected(memory.manage(range, MemoryVerb::ALL[more])),
            Verb::Check => memory.check(Paid {
                least: range.start,
                most: range.end,
            }),
            Verb::Absent => return Answer::Page(memory.absent(&to_numbers(&request.bytes))),
            Verb::Evict => memory.evict(),
            Verb::SetMemory => memory.set_memory(more as u8),
            Verb::Read => {
                let mut bytes = vec![0; range.len()];
                let done = self.way(side).read(0, range.start, &mut bytes);
                return Answer::Bytes(done, bytes);
            }
            Verb::Write => {
                let done = self.way(side).write(0, range.start, &request.bytes);
                return Answer::Expected(done);
            }
            Verb::Run => {
                let plans = to_plans(more, &request.bytes);
                obey_plans(0, &plans, true, || self.way(side));
            }
            Verb::Exit => {
                self.softfault.finish(more != 0);
                self.kernel.clear();
            }
            Verb::Fork => unreachable!("a caller that forks must know which process goes on"),
        }
        Answer::DONE
    }

    /// Makes a child by `fork(2)`, while threads touch all mapped pages.
    pub fn fork(&self) -> Forked {
        reap();
        let sides = [self.side(0), self.side(1)];
        let pages = sides.iter().flat_map(|side| side.places().addresses());
        // Where paid pages are compared with the model's, only the model touches.
        let pages = pages.filter(|_| self.softfault.swaps);
        let readers = Readers::begin(pages.collect());
        // SAFETY: the child goes on here, and ends with `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", io::Error::last_os_error());
        if child == 0 {
            // There they do not run.
            core::mem::forget(readers);
            return Forked::Child;
        }
        readers.end();
        Forked::Parent
    }

    /// In a child: does the listener's requests, and ends. The process is a
    /// copy, of which nothing is given back to the parent.
    pub fn serve(&mut self, listener: &SocketAddr) -> ! {
        let served = catch_unwind(AssertUnwindSafe(|| {
            // A grandchild begins here once more.
            while let Forked::Child = self.serve_as_one(listener) {}
        }));
        let code = if served.is_ok() { 0 } else { 101 };
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(code) }
    }

    /// The same until this process is another, or has to end.
    fn serve_as_one(&mut self, listener: &SocketAddr) -> Forked {
        self.softfault.begin_in_child();
        let mut stream = UnixStream::connect_addr(listener).unwrap();
        let id = Answer::Page(Some(std::process::id() as usize));
        id.send(&mut stream).unwrap();
        while let Some(request) = Request::receive(&mut stream) {
            let answer = match request.verb {
                Verb::Fork => match self.fork() {
                    Forked::Parent => Answer::DONE,
                    Forked::Child => return Forked::Child,
                },
                _ => self.obey(&request),
            };
            answer.send(&mut stream).unwrap();
            if request.verb == Verb::Exit {
                break;
            }
        }
        Forked::Parent
    }
}

/// Looks after children that have ended.
///
/// # Panics
/// If one has not ended as it should.
fn reap() {
    loop {
        let mut status = 0;
        // SAFETY: fills the status.
        match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
            child if child <= 0 => return,
            child => assert_eq!(status, 0, "how child {child} ended"),
        }
    }
}

/// Waits until all children have ended, and says how.
pub fn wait_for_all() -> Vec<i32> {
    let mut ended = Vec::new();
    loop {
        let mut status = 0;
        // SAFETY: fills the status.
        let child = unsafe { libc::waitpid(-1, &mut status, 0) };
        let error = io::Error::last_os_error();
        match (child, error.raw_os_error()) {
            (-1, Some(libc::EINTR)) => {}
            (-1, Some(libc::ECHILD)) => return ended,
            (-1, _) => panic!("{error}"),
            _ => ended.push(status),
        }
    }
}

/// Threads that touch pages.
struct Readers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Begins, and returns when every thread runs.
    fn begin(pages: Vec<usize>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let begun = Arc::new(AtomicUsize::new(0));
        let pages = Arc::new(pages);
        let thread = |nth: usize| {
            let (stop, begun, pages) = (stop.clone(), begun.clone(), pages.clone());
            std::thread::spawn(move || {
                let first = nth * pages.len() / READERS;
                begun.fetch_add(1, Relaxed);
                for page in pages.iter().cycle().skip(first) {
                    // SAFETY: mapped until the threads have ended.
                    unsafe { (*page as *const u8).read_volatile() };
                    // Relaxed: nothing else is told by it.
                    if stop.load(Relaxed) {
                        break;
                    }
                }
            })
        };
        let threads = (0..READERS).map(thread).collect();
        while begun.load(Relaxed) < READERS {
            std::thread::yield_now();
        }
        Self { stop, threads }
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}
