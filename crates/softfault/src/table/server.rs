//! The threads that have the table, and how they are asked.
//!
//! One request at a time for each server:
//!
//! ```text
//!   state      changed by, after writing                           sleeping
//!   IDLE       the server (the answer); zero at first              the server
//!     │ the caller, which has `taken`: number and arguments
//!   REQUESTED ──► IDLE again, by the caller: the kernel has refused to wake the server (seccomp)
//!     │ the server                                                 the caller
//!   SERVING
//!     │ the server: the answer
//!   IDLE
//! ```
//!
//! All of it lies in pages that a child of fork sees as zeros, which mean: no table.

use super::credentials::{Credentials, supplementary_groups};
use super::raw::{self, Blocked};
use core::cell::UnsafeCell;
use core::ffi::c_long;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use softfault_engine::PAGE_SIZE;
use softfault_engine::lock::{Mutex, MutexGuard};

/// Servers of one table, at most. Four evictions may write at a time; where their device hangs, two are left for all other calls.
pub(super) const SERVERS: usize = 6;
/// A server's stack; below it a page that is never there.
const STACK: usize = 4 * PAGE_SIZE;

/// Looks, a millisecond apart, that a program which changes its rights waits for servers: none hangs that is just reading.
const PATIENCE: u32 = 1000;

const IDLE: u32 = 0;
const REQUESTED: u32 = 1;
const SERVING: u32 = 2;

/// One server. Zeros are one that there is not.
struct Server {
    /// Held by the caller that may ask the server.
    taken: Mutex<()>,
    /// [`IDLE`], [`REQUESTED`] or [`SERVING`].
    state: AtomicU32,
    /// Protected by `state`.
    request: UnsafeCell<ServerCall>,
    /// The kernel's number of the thread; the kernel makes it zero when it ends.
    id: AtomicU32,
}

/// A system call, and the kernel's answer.
#[derive(Clone, Copy)]
pub(super) struct ServerCall {
    number: c_long,
    args: [usize; 6],
    answer: isize,
}

impl ServerCall {
    pub(super) fn new(number: c_long, args: [usize; 6]) -> Self {
        Self {
            number,
            args,
            answer: -(libc::ENOSYS as isize),
        }
    }

    /// The same, behind a number of the table.
    pub(super) fn behind(fd: i32, (number, [a, b, c, d, e]): (c_long, [usize; 5])) -> Self {
        Self::new(number, [fd as usize, a, b, c, d, e])
    }

    /// The same, behind the descriptor that the first call of its row makes.
    pub(super) fn behind_the_first(then: (c_long, [usize; 5])) -> Self {
        Self::behind(OF_THE_FIRST, then)
    }

    pub(super) fn answer(&self) -> Result<usize, i32> {
        raw::answered(self.answer)
    }
}

/// A server that the holder may ask.
struct Taken<'a> {
    server: &'a Server,
    /// Dropped before the next field: the server is free when a thread is woken.
    _taken: MutexGuard<'a, ()>,
    _released: Released<'a>,
}

/// Wakes a thread that waits for a server.
struct Released<'a>(&'a DescriptorTable);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        // A read-modify-write: see `take`.
        if self.0.waiting.fetch_add(0, Ordering::AcqRel) > 0 {
            // Release pairs with the Acquire in `take`.
            self.0.released.fetch_add(1, Ordering::Release);
            // Where that is refused the waiter looks by itself.
            let _ = raw::wake(&self.0.released);
        }
    }
}

/// A process's table and its servers. Zeros are none.
pub(super) struct DescriptorTable {
    /// Held while a server is started; the credentials that servers have.
    starting: Mutex<Credentials>,
    /// Which table this is of all that this process and those above it had; zero as
    /// long as there is none. Written under `starting`.
    generation: AtomicU32,
    /// The process. Written before `generation`.
    process: AtomicI32,
    /// Servers that have been started: the first of `servers`. Written under `starting`.
    started: AtomicU32,
    /// Threads that found all servers busy.
    waiting: AtomicU32,
    /// Counts the servers that such threads may try again.
    released: AtomicU32,
    /// Held while a number for the program's table is taken.
    pub(super) borrowing: Mutex<()>,
    servers: [Server; SERVERS],
}

// SAFETY: requests are protected by `taken` and `state`; all else is atomic.
unsafe impl Sync for DescriptorTable {}

static TABLE: AtomicPtr<DescriptorTable> = AtomicPtr::new(core::ptr::null_mut());
/// Tables that this process and those above it had. A child goes on counting.
static GENERATIONS: AtomicU32 = AtomicU32::new(0);
/// The errno with which the kernel refused a table to a thread that it had let us start:
/// it would again.
static REFUSED: AtomicI32 = AtomicI32::new(0);

impl DescriptorTable {
    /// The memory for it; `None` if none was ever asked for.
    fn here() -> Option<&'static Self> {
        // Acquire pairs with the Release in `place`.
        // SAFETY: null, or mapped for ever. Zeros are valid.
        unsafe { TABLE.load(Ordering::Acquire).as_ref() }
    }

    fn place() -> Result<&'static Self, i32> {
        if let Some(table) = Self::here() {
            return Ok(table);
        }
        let bytes = size_of::<Self>().next_multiple_of(PAGE_SIZE);
        let fresh = Fresh::new(bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        fresh.advise(libc::MADV_WIPEONFORK)?;
        let (set, failed) = (Ordering::AcqRel, Ordering::Acquire);
        let null = core::ptr::null_mut();
        let placed = TABLE.compare_exchange(null, fresh.start as *mut Self, set, failed);
        if placed.is_ok() {
            fresh.keep();
        }
        Self::here().ok_or(libc::ENOMEM)
    }

    /// This process's, with a server at least. The error is an errno.
    pub(super) fn start() -> Result<&'static Self, i32> {
        let table = Self::place()?;
        // Acquire pairs with the Release below.
        if table.generation.load(Ordering::Acquire) != 0 {
            return Ok(table);
        }
        let _blocked = Blocked::all();
        let mut starting = table.starting.lock();
        if table.generation.load(Ordering::Acquire) != 0 {
            return Ok(table);
        }
        match REFUSED.load(Ordering::Relaxed) {
            0 => {}
            errno => return Err(errno),
        }
        *starting = Credentials::here();
        table.start_first()?;
        // SAFETY: only asks.
        let process = unsafe { raw::call(libc::SYS_getpid, &[0; 6]) };
        table.process.store(process as i32, Ordering::Relaxed);
        table.started.store(1, Ordering::Relaxed);
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        table.generation.store(generation.max(1), Ordering::Release);
        Ok(table)
    }

    /// The one in which something of this generation is, if this process has it.
    pub(super) fn of(generation: u32) -> Result<&'static Self, i32> {
        let is = |table: &&Self| table.generation.load(Ordering::Acquire) == generation;
        Self::here().filter(is).ok_or(libc::EBADF)
    }

    /// This process's, if it has one.
    pub(super) fn there() -> Option<&'static Self> {
        // Acquire pairs with the Release in `start`.
        let is = |table: &&Self| table.generation.load(Ordering::Acquire) != 0;
        Self::here().filter(is)
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// True in the process itself: false in a child that shares its memory (vfork) and
    /// has descriptors of its own.
    pub(super) fn is_of_this_process(&self) -> bool {
        // SAFETY: only asks.
        let process = unsafe { raw::call(libc::SYS_getpid, &[0; 6]) };
        self.process.load(Ordering::Relaxed) as isize == process
    }

    /// The kernel's number of a server: by it the table is found. Zero if there is none any more.
    pub(super) fn server(&self) -> u32 {
        let id = |server: &Server| server.id.load(Ordering::Relaxed);
        self.living().next().map_or(0, id)
    }

    fn start_first(&self) -> Result<(), i32> {
        let server = &self.servers[0];
        let stack = stack()?;
        let argument = core::ptr::from_ref(server) as usize;
        // SAFETY: a new stack; `serve` uses no thread-local storage; the servers are
        // there for ever.
        let id = unsafe { raw::thread(stack.end(), serve, argument, server.id.as_ptr() as usize) };
        // Not remembered: another thread may be under no filter (seccomp) that refuses it.
        raw::answered(id)?;
        stack.keep();
        // It does not inherit a single descriptor: none has to be closed, which programs
        // and devices could notice.
        const CLOSE_RANGE_UNSHARE: usize = 1 << 1;
        let all = [0, u32::MAX as usize, CLOSE_RANGE_UNSHARE, 0, 0, 0];
        let _taken = server.taken.lock();
        // SAFETY: no memory is involved.
        let apart = unsafe { server.run(libc::SYS_close_range, &all) };
        if let Err(errno) = apart {
            REFUSED.store(errno, Ordering::Relaxed);
            // SAFETY: the thread ends and answers no more.
            let _ = unsafe { server.request(libc::SYS_exit, &[0; 6]) };
            return Err(errno);
        }
        server.set_name();
        Ok(())
    }

    /// Starts all the servers that there may be. Where there can be no more, requests wait
    /// for each other.
    pub(super) fn want_all(&self) {
        let _blocked = Blocked::all();
        let _starting = self.starting.lock();
        let started = self.started.load(Ordering::Relaxed) as usize;
        for new in started..SERVERS {
            let Ok(stack) = stack() else { return };
            let server = &self.servers[new];
            let argument = core::ptr::from_ref(server) as usize;
            let id = server.id.as_ptr() as usize;
            // SAFETY: as for the first one.
            let made = unsafe { self.run(START, &[stack.end(), argument, id, 0, 0, 0]) };
            // The server that was to start it may have ended when it had.
            if made.is_ok() || server.is_alive() {
                stack.keep();
            }
            if made.is_err() {
                return;
            }
            {
                let _taken = server.taken.lock();
                server.set_name();
            }
            // Release pairs with the Acquire in `run`.
            self.started.store(new as u32 + 1, Ordering::Release);
        }
    }

    /// Lets servers have the rights of the calling thread. To be called before one opens
    /// something. Uses the heap if they have others.
    pub(super) fn take_credentials(&self) {
        #[cfg(test)]
        assert!(!raw::is_blocked(libc::SIGBUS), "the heap is used");
        let callers = Credentials::here();
        {
            let _blocked = Blocked::all();
            if *self.starting.lock() == callers {
                return;
            }
        }
        // The heap may be memory whose faults are served here: it is used while faults can be, and dropped so.
        let groups = supplementary_groups();
        let _blocked = Blocked::all();
        let mut servers = self.starting.lock();
        if *servers == callers {
            return;
        }
        *servers = callers;
        let started = self.started.load(Ordering::Acquire) as usize;
        for server in &self.servers[..started] {
            let _taken = server.taken.lock();
            server.give(&callers, &groups);
        }
    }

    /// The calling thread's rights have changed: servers have them too, and its groups, when this returns. One whose call hangs gets them when
    /// something is opened next: it is waited for [`PATIENCE`] at most. Uses the heap.
    pub(super) fn follow_credentials(&self) {
        let callers = Credentials::here();
        let groups = supplementary_groups();
        let _blocked = Blocked::all();
        let mut left = PATIENCE;
        let Some(mut servers) = patiently(&mut left, || self.starting.try_lock()) else {
            return;
        };
        *servers = callers;
        let started = self.started.load(Ordering::Acquire) as usize;
        for server in &self.servers[..started] {
            match patiently(&mut left, || server.taken.try_lock()) {
                Some(_taken) => server.give(&callers, &groups),
                None => *servers = Credentials::DIFFERENT,
            }
        }
    }

    /// A system call in the table.
    ///
    /// # Safety
    /// The arguments are those that this call takes, and live until it returns.
    // Inlined: a frame less on the handler's stack.
    #[inline(always)]
    pub(super) unsafe fn run(&self, number: c_long, args: &[usize; 6]) -> Result<usize, i32> {
        let _blocked = Blocked::all();
        let taken = self.take()?;
        // SAFETY: the caller's promise.
        unsafe { taken.server.run(number, args) }
    }

    /// A server, as soon as one has nothing to do: a call that hangs holds up no other while there are more servers. The error is ESRCH if
    /// there is none any more.
    fn take(&self) -> Result<Taken<'_>, i32> {
        if let Some(taken) = self.try_take() {
            return Ok(taken);
        }
        // AcqRel pairs with the fetch_add in `Released::drop`: either that thread sees this one wait, or its server is free here.
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let taken = loop {
            // Acquire pairs with the Release in `Released::drop`: a server that is counted is free here, or was taken since.
            let seen = self.released.load(Ordering::Acquire);
            if let Some(taken) = self.try_take() {
                break Ok(taken);
            }
            if self.living().next().is_none() {
                break Err(libc::ESRCH);
            }
            raw::wait(&self.released, seen, true);
        };
        // Relaxed: a thread that still sees it wakes others for nothing.
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        taken
    }

    fn try_take(&self) -> Option<Taken<'_>> {
        self.living().find_map(|server| {
            let taken = server.taken.try_lock()?;
            // It may have ended meanwhile, for another's call.
            server.is_alive().then_some(Taken {
                server,
                _taken: taken,
                _released: Released(self),
            })
        })
    }

    /// The servers that there are: a filter of the program's may have ended some for a system call.
    fn living(&self) -> impl Iterator<Item = &Server> {
        let started = self.started.load(Ordering::Acquire).max(1) as usize;
        self.servers[..started]
            .iter()
            .filter(|server| server.is_alive())
    }

    /// System calls in the table, as one request. Each has its own answer; the error is of the request.
    ///
    /// # Safety
    /// As of [`run`](Self::run), of each of them.
    pub(super) unsafe fn run_in_a_row(&self, calls: &mut [ServerCall]) -> Result<(), i32> {
        let args = [calls.as_mut_ptr() as usize, calls.len(), 0, 0, 0, 0];
        // SAFETY: the calls live until it returns, and nobody else looks at them; for the
        // rest the caller's promise.
        unsafe { self.run(IN_A_ROW, &args) }.map(|_| ())
    }
}

/// A request to start another server: stack, server, where its number goes.
const START: c_long = -1;
/// A request of several calls: where they are, and how many. One request costs two changes of threads, for any number
/// of calls.
const IN_A_ROW: c_long = -2;
/// The descriptor of a call in a row that is behind the one which the first makes: no number, and none of the kernel's own
/// (AT_FDCWD is one).
const OF_THE_FIRST: i32 = i32::MIN;

#[cfg(test)]
std::thread_local! {
    /// Requests of this thread.
    pub(super) static REQUESTS: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

/// Tries until it succeeds, as often as is `left`.
fn patiently<T>(left: &mut u32, mut try_once: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        let got = try_once();
        if got.is_some() || *left == 0 {
            return got;
        }
        *left -= 1;
        raw::pause(1);
    }
}

impl Server {
    /// # Safety
    /// As of [`DescriptorTable::run`]; `taken` is held.
    unsafe fn run(&self, number: c_long, args: &[usize; 6]) -> Result<usize, i32> {
        #[cfg(test)]
        REQUESTS.set(REQUESTS.get() + 1);
        if !self.is_alive() {
            return Err(libc::ESRCH);
        }
        // SAFETY: the caller's promise.
        unsafe { self.request(number, args) }?;
        loop {
            // Acquire pairs with the Release in `serve`.
            let state = self.state.load(Ordering::Acquire);
            if state == IDLE {
                break;
            }
            raw::wait(&self.state, state, true);
            if !self.is_alive() {
                return Err(libc::ESRCH);
            }
        }
        // SAFETY: idle, and `taken` is held.
        raw::answered(unsafe { (*self.request.get()).answer })
    }

    /// An error where the server sleeps, and cannot be woken.
    ///
    /// # Safety
    /// As of [`DescriptorTable::run`]; `taken` is held.
    unsafe fn request(&self, number: c_long, args: &[usize; 6]) -> Result<(), i32> {
        let request = ServerCall {
            number,
            args: *args,
            answer: 0,
        };
        // SAFETY: idle, and `taken` is held: nobody else looks.
        unsafe { *self.request.get() = request };
        // Release pairs with the Acquire in `serve`.
        self.state.store(REQUESTED, Ordering::Release);
        let Err(refused) = raw::wake(&self.state) else {
            return Ok(());
        };
        // Relaxed: nobody has looked at the request.
        let relaxed = Ordering::Relaxed;
        match (self.state).compare_exchange(REQUESTED, IDLE, relaxed, relaxed) {
            Ok(_) => Err(refused),
            Err(_) => Ok(()),
        }
    }

    fn is_alive(&self) -> bool {
        self.id.load(Ordering::Acquire) != 0
    }

    /// Gives it rights, as far as it may take them. `taken` is held.
    fn give(&self, rights: &Credentials, groups: &[libc::gid_t]) {
        rights.give(groups, &|number, [a, b, c]| {
            // SAFETY: of ids, and of memory that lives until then; `taken` is held.
            unsafe { self.run(number, &[a, b, c, 0, 0, 0]) }
        });
    }

    /// Its name, as `ps` shows it.
    fn set_name(&self) {
        let name = c"softfault".as_ptr() as usize;
        let args = [libc::PR_SET_NAME as usize, name, 0, 0, 0, 0];
        // SAFETY: a string that ends in zero; `taken` is held.
        let _ = unsafe { self.run(libc::SYS_prctl, &args) };
    }
}

/// The loop of a server. It has no thread-local storage of its own and calls
/// nothing of libc's; it does not panic.
extern "C" fn serve(server: usize) -> ! {
    // SAFETY: the servers are there for ever.
    let server = unsafe { &*(server as *const Server) };
    loop {
        // Acquire pairs with the Release in `request`.
        let (got, not) = (Ordering::Acquire, Ordering::Relaxed);
        let is_taken = (server.state).compare_exchange(REQUESTED, SERVING, got, not);
        if is_taken.is_err() {
            raw::wait(&server.state, IDLE, false);
            continue;
        }
        let request = server.request.get();
        // SAFETY: serving: the caller waits and does not look. It vouches
        // for the call's arguments.
        unsafe {
            let args = &(*request).args;
            (*request).answer = match (*request).number {
                START => raw::thread(args[0], serve, args[1], args[2]),
                IN_A_ROW => in_a_row(args[0] as *mut ServerCall, args[1]),
                number => raw::call(number, args),
            };
        }
        // Release pairs with the Acquire in `run`.
        server.state.store(IDLE, Ordering::Release);
        // Where that is refused the caller looks by itself.
        let _ = raw::wake(&server.state);
    }
}

/// Makes the calls of one request, in the server.
///
/// # Safety
/// So many calls lie there, and are nobody else's meanwhile; the caller vouches for their
/// arguments.
unsafe fn in_a_row(first: *mut ServerCall, count: usize) -> isize {
    for place in 0..count {
        // SAFETY: as above; nothing here panics.
        unsafe {
            let call = first.wrapping_add(place);
            if (*call).args[0] == OF_THE_FIRST as usize && (*first).answer >= 0 {
                (*call).args[0] = (*first).answer as usize;
            }
            (*call).answer = raw::call((*call).number, &(*call).args);
        }
    }
    0
}

/// A new stack.
fn stack() -> Result<Fresh, i32> {
    let fresh = Fresh::new(PAGE_SIZE + STACK, libc::PROT_NONE)?;
    let writable = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: a part of the range that was just mapped.
    let allowed = unsafe {
        let args = [fresh.start + PAGE_SIZE, STACK, writable, 0, 0, 0];
        raw::call(libc::SYS_mprotect, &args)
    };
    raw::answered(allowed)?;
    fresh.advise(libc::MADV_DONTFORK)?;
    Ok(fresh)
}

/// Memory of zeros that nobody knows yet. It is unmapped unless it is kept.
struct Fresh {
    start: usize,
    bytes: usize,
}

impl Fresh {
    fn new(bytes: usize, protection: i32) -> Result<Self, i32> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let args = [0, bytes, protection as usize, flags as usize, usize::MAX, 0];
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = raw::answered(unsafe { raw::call(libc::SYS_mmap, &args) })?;
        Ok(Self { start, bytes })
    }

    fn end(&self) -> usize {
        self.start + self.bytes
    }

    fn advise(&self, advice: i32) -> Result<(), i32> {
        let args = [self.start, self.bytes, advice as usize, 0, 0, 0];
        // SAFETY: advice about the range that was just mapped.
        raw::answered(unsafe { raw::call(libc::SYS_madvise, &args) }).map(drop)
    }

    /// It stays from now on.
    fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: mapped by this, and nobody knows it.
        unsafe { raw::call(libc::SYS_munmap, &[self.start, self.bytes, 0, 0, 0, 0]) };
    }
}
