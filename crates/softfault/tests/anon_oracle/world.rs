//! Both sides of all spaces, each of which is a process: this one is space 0.

use crate::kernel::Kernel;
use crate::process::{Forked, Process, wait_for_all};
use crate::softfault_side::Softfault;
use crate::wire::{Answer, Request, Verb, from_numbers, from_plans, number_of};
use softfault_engine::mm::{MmError, Protection};
use softfault_oracle::{Access, AnonWorld, Expected, MemoryVerb, Op, Paid, Step, obey_plans};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};

/// Pages that may be locked, of all spaces together.
const MOST_LOCKED: usize = 200;

/// A process that is asked.
struct Other {
    stream: Mutex<UnixStream>,
    process: OwnedFd,
}

impl Other {
    /// The child that has just come.
    fn accept(listener: &UnixListener) -> Self {
        let (mut stream, _) = listener.accept().unwrap();
        let Answer::Page(Some(id)) = Answer::receive(&mut stream).unwrap() else {
            panic!("a child names itself first");
        };
        // SAFETY: no memory involved.
        let process = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
        assert!(process >= 0, "{}", io::Error::last_os_error());
        Self {
            stream: Mutex::new(stream),
            // SAFETY: new.
            process: unsafe { OwnedFd::from_raw_fd(process as i32) },
        }
    }

    /// Waits until it has ended, and everything that it had is closed.
    fn wait(self) {
        let mut poll = libc::pollfd {
            fd: self.process.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: fills the structure.
        while unsafe { libc::poll(&mut poll, 1, -1) } != 1 {}
    }
}

/// All processes.
pub struct Processes {
    here: Process,
    /// Space 0 has not ended.
    is_here: bool,
    others: BTreeMap<usize, Other>,
    listener: UnixListener,
    address: SocketAddr,
}

impl Processes {
    pub fn new(softfault: Softfault, kernel: Kernel) -> Self {
        // Orphans are looked after here.
        // SAFETY: no memory involved.
        let done = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        assert_eq!(done, 0);
        let name = format!("softfault-oracle-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        Self {
            here: Process { softfault, kernel },
            is_here: true,
            others: BTreeMap::new(),
            listener: UnixListener::bind_addr(&address).unwrap(),
            address,
        }
    }

    fn ask(&self, space: usize, request: &Request) -> Answer {
        let mut stream = self.others[&space].stream.lock().unwrap();
        request.send(&mut stream).unwrap();
        Answer::receive(&mut stream).unwrap_or_else(|error| {
            panic!("space {space} has no answer to {:?}: {error}", request.verb)
        })
    }

    fn change(&mut self, space: usize, request: &Request) -> Answer {
        match space {
            0 => self.here.obey(request),
            _ => self.ask(space, request),
        }
    }

    fn fork(&mut self, space: usize, child: usize) {
        if space != 0 {
            let done = self.ask(space, &Request::new(Verb::Fork, 0, 0..0));
            assert_eq!(done, Answer::DONE);
        } else if let Forked::Child = self.here.fork() {
            self.others.clear();
            // SAFETY: only the asking process listens; here it is not used any more.
            unsafe { libc::close(self.listener.as_raw_fd()) };
            self.here.serve(&self.address);
        }
        self.others.insert(child, Other::accept(&self.listener));
    }

    /// Ends a space. `is_last`: of those that it is an ancestor of.
    fn exit(&mut self, space: usize, is_last: bool) {
        let request = Request::new(Verb::Exit, 0, 0..0).more(is_last.into());
        assert_eq!(self.change(space, &request), Answer::DONE);
        match self.others.remove(&space) {
            Some(other) => other.wait(),
            None => self.is_here = false,
        }
    }

    /// Ends all spaces: the youngest first.
    pub fn finish(&mut self) {
        let others: Vec<_> = self.others.keys().copied().collect();
        for space in others.into_iter().rev() {
            self.exit(space, true);
        }
        let ended = wait_for_all();
        assert!(ended.iter().all(|&status| status == 0), "{ended:?}");
        self.exit(0, true);
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // Nobody asks them any more: they end.
        self.others.clear();
        wait_for_all();
    }
}

/// One side of them.
pub struct View {
    pub processes: Arc<RwLock<Processes>>,
    pub side: usize,
}

impl View {
    fn read(&self) -> RwLockReadGuard<'_, Processes> {
        self.processes.read().unwrap()
    }

    fn change(&self, space: usize, verb: Verb, pages: Range<usize>, more: usize) -> Answer {
        let request = Request::new(verb, self.side, pages).more(more);
        self.processes.write().unwrap().change(space, &request)
    }

    fn done(&self, space: usize, verb: Verb, pages: Range<usize>, more: usize) {
        let answer = self.change(space, verb, pages, more);
        assert_eq!(answer, Answer::DONE);
    }

    fn mapped(
        &self,
        space: usize,
        verb: Verb,
        pages: Range<usize>,
        from: usize,
    ) -> Result<(), MmError> {
        match self.change(space, verb, pages, from) {
            Answer::Mapped(mapped) => mapped,
            other => panic!("{other:?}"),
        }
    }
}

/// To the pages of all spaces.
struct Ways<'a> {
    processes: RwLockReadGuard<'a, Processes>,
    side: usize,
}

impl Access for Ways<'_> {
    fn read(&mut self, space: usize, at: usize, bytes: &mut [u8]) -> Expected {
        if space == 0 {
            return self.processes.here.way(self.side).read(space, at, bytes);
        }
        let request = Request::new(Verb::Read, self.side, at..at + bytes.len());
        match self.processes.ask(space, &request) {
            Answer::Bytes(done, found) => {
                bytes.copy_from_slice(&found);
                done
            }
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, space: usize, at: usize, bytes: &[u8]) -> Expected {
        if space == 0 {
            return self.processes.here.way(self.side).write(space, at, bytes);
        }
        let request = Request::new(Verb::Write, self.side, at..at + bytes.len());
        match self.processes.ask(space, &request.bytes(bytes.to_vec())) {
            Answer::Expected(done) => done,
            other => panic!("{other:?}"),
        }
    }
}

impl AnonWorld for View {
    fn name(&self) -> &'static str {
        match self.side {
            0 => "softfault",
            _ => "the kernel",
        }
    }

    fn access(&self) -> Box<dyn Access + '_> {
        Box::new(Ways {
            processes: self.read(),
            side: self.side,
        })
    }

    fn map(&mut self, space: usize, pages: Range<usize>) -> Result<(), MmError> {
        self.mapped(space, Verb::MapZeros, pages, 0)
    }

    fn unmap(&mut self, space: usize, pages: Range<usize>) {
        self.done(space, Verb::Unmap, pages, 0);
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn is_by_map(&self) -> bool {
        true
    }

    fn protect(
        &mut self,
        space: usize,
        pages: Range<usize>,
        protection: Protection,
    ) -> Result<(), MmError> {
        let verb = match protection {
            Protection::ReadWrite => Verb::MakeMut,
            _ => Verb::MakeReadOnly,
        };
        self.done(space, verb, pages, 0);
        Ok(())
    }

    fn resize(&mut self, space: usize, pages: Range<usize>, len: usize) {
        self.done(space, Verb::Resize, pages, len);
    }

    fn fork(&mut self, space: usize, child: usize) -> bool {
        // Both sides are of one process.
        if self.side == 0 {
            self.processes.write().unwrap().fork(space, child);
        }
        true
    }

    fn exit(&mut self, space: usize) {
        if self.side == 0 {
            self.processes.write().unwrap().exit(space, false);
        }
    }

    fn is_managed(&self) -> bool {
        true
    }

    fn map_copy(&mut self, space: usize, pages: Range<usize>, from: usize) -> Result<(), MmError> {
        self.mapped(space, Verb::MapCopy, pages, from)
    }

    fn manage(&mut self, space: usize, pages: Range<usize>, verb: MemoryVerb) -> Expected {
        match self.change(space, Verb::Manage, pages, number_of(verb)) {
            Answer::Expected(done) => done,
            other => panic!("{other:?}"),
        }
    }

    fn beneath(&mut self, op: &Op) {
        let (verb, more) = match op {
            Op::Evict => (Verb::Evict, 0),
            Op::Memory { more } => (Verb::SetMemory, *more),
            _ => return,
        };
        let mut processes = self.processes.write().unwrap();
        let others = processes.others.keys().copied();
        let spaces: Vec<_> = others.chain(processes.is_here.then_some(0)).collect();
        let request = Request::new(verb, self.side, 0..0).more(more.into());
        for space in spaces {
            assert_eq!(processes.change(space, &request), Answer::DONE);
        }
    }

    fn most_locked(&self) -> usize {
        MOST_LOCKED
    }

    fn absent(&self, space: usize, pages: &[usize]) -> Option<usize> {
        if pages.is_empty() {
            return None;
        }
        let processes = self.read();
        if space == 0 {
            return processes.here.side(self.side).absent(pages);
        }
        let request = Request::new(Verb::Absent, self.side, 0..0);
        match processes.ask(space, &request.bytes(from_numbers(pages))) {
            Answer::Page(page) => page,
            other => panic!("{other:?}"),
        }
    }

    fn run(&self, space: usize, plans: &[Vec<Step>]) {
        if space == 0 {
            return obey_plans(space, plans, true, || self.access());
        }
        let request = Request::new(Verb::Run, self.side, 0..0).more(plans.len());
        let done = self.read().ask(space, &request.bytes(from_plans(plans)));
        assert_eq!(done, Answer::DONE);
    }

    fn check(&self, space: usize, paid: Paid) {
        // The kernel's is as it is.
        if self.side == 0 {
            self.done(space, Verb::Check, paid.least..paid.most, 0);
        }
    }
}
