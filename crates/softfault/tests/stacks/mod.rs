//! Stacks whose use can be measured.

#![allow(dead_code)]

use libc::c_void;

const PAINT: u8 = 0xA5;
const PAGE: usize = 4096;

/// Memory for a stack, painted, with a page beneath that nobody may touch.
pub struct Stack {
    mapped: *mut u8,
    bytes: usize,
}

// SAFETY: owns its memory.
unsafe impl Sync for Stack {}
// SAFETY: owns its memory.
unsafe impl Send for Stack {}

impl Stack {
    /// A stack of `bytes`.
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(16);
        let whole = bytes.next_multiple_of(PAGE);
        // SAFETY: new memory, whose first page is closed; the stack ends at
        // its beginning.
        let mapped = unsafe {
            let mapped = libc::mmap(
                core::ptr::null_mut(),
                PAGE + whole,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(mapped, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(mapped, PAGE, libc::PROT_NONE), 0);
            mapped.cast::<u8>()
        };
        let stack = Self { mapped, bytes };
        // SAFETY: ours, and nobody runs on it.
        unsafe { stack.low().write_bytes(PAINT, bytes) };
        stack
    }

    /// The lowest byte.
    pub fn low(&self) -> *mut u8 {
        // SAFETY: within the mapping.
        unsafe { self.mapped.add(PAGE) }
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes from the top that were ever written.
    pub fn used(&self) -> usize {
        // SAFETY: within the mapping; volatile, since others wrote it.
        let painted = (0..self.bytes)
            .take_while(|&at| unsafe { self.low().add(at).read_volatile() } == PAINT)
            .count();
        self.bytes - painted
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let whole = self.bytes.next_multiple_of(PAGE) + PAGE;
        // SAFETY: the whole mapping; nobody runs on it any more.
        unsafe { libc::munmap(self.mapped.cast(), whole) };
    }
}

struct Job<'a> {
    work: &'a (dyn Fn() + Sync),
    /// Where the stack was when the work began.
    began: usize,
}

extern "C" fn run(job: *mut c_void) -> *mut c_void {
    // SAFETY: `on_stack` handed it over and waits.
    let job = unsafe { &mut *job.cast::<Job<'_>>() };
    let here = 0u8;
    job.began = core::ptr::from_ref(&here).addr();
    (job.work)();
    core::ptr::null_mut()
}

/// Starts a POSIX thread on `stack`.
pub fn start(
    stack: &Stack,
    run: extern "C" fn(*mut c_void) -> *mut c_void,
    job: *mut c_void,
) -> libc::pthread_t {
    // SAFETY: the attributes are initialised, the stack lives until the join.
    unsafe {
        let mut attributes = core::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        let set = libc::pthread_attr_setstack(&mut attributes, stack.low().cast(), stack.bytes());
        assert_eq!(set, 0, "a stack of {} bytes", stack.bytes());
        let mut thread = core::mem::zeroed();
        assert_eq!(libc::pthread_create(&mut thread, &attributes, run, job), 0);
        libc::pthread_attr_destroy(&mut attributes);
        thread
    }
}

/// Runs `work` in a thread on `stack`; returns how many bytes of it the work
/// used.
pub fn on_stack(stack: &Stack, work: &(dyn Fn() + Sync)) -> usize {
    let mut job = Job { work, began: 0 };
    let thread = start(stack, run, core::ptr::from_mut(&mut job).cast());
    // SAFETY: joined once.
    unsafe { libc::pthread_join(thread, core::ptr::null_mut()) };
    let top = stack.low() as usize + stack.bytes();
    stack.used() - (top - job.began)
}

extern "C" fn nothing(_: libc::c_int) {}

/// Lets a signal be handled by a handler that does nothing.
pub fn empty_signal() {
    // SAFETY: installs an empty handler, and raises the signal in this thread.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGUSR2, &action, core::ptr::null_mut());
        libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2);
    }
}
