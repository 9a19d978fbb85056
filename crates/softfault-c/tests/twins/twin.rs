//! A map of ours and one of the kernel's, of the same.

use core::ffi::{c_int, c_void};
use softfault_c::engine::{
    SOFTFAULT_ALLOW_KERNEL_MAPS_NO, SOFTFAULT_COHERENCE_ENGINE, SOFTFAULT_READS_DIRECT,
};
use softfault_c::engine::{softfault_engine, softfault_engine_new, softfault_engine_options};
use softfault_c::error::softfault_error;
use softfault_c::mmap::{softfault_map_options, softfault_mmap_ex};
use softfault_c::munmap::softfault_munmap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub const PAGE: usize = 4096;

/// The tests take turns: they share an engine, whose budget some use up, and an address space, in which the page behind a map has
/// to be nobody's for the tests of ranges that are too long.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call's answer: nothing, or errno.
pub type Answer = Result<(), c_int>;

pub fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap()
}

/// The answer of a call that says 0 or -1.
pub fn answer(said: c_int) -> Answer {
    match said {
        0 => Ok(()),
        -1 => Err(errno()),
        said => panic!("{said} is neither 0 nor -1"),
    }
}

/// True while a thread of this process waits in read(2).
pub fn is_in_read(thread: libc::pid_t) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    let call = call.expect("this process's own");
    call.split(' ').next() == Some(&libc::SYS_read.to_string())
}

/// The last text of ours, for a test's messages.
pub fn text() -> String {
    // SAFETY: it is a string until the next failure of this thread.
    let text = unsafe { CStr::from_ptr(softfault_error()) };
    text.to_string_lossy().into_owned()
}

/// Options as C sets them up.
pub fn engine_options() -> softfault_engine_options {
    // SAFETY: zeros are a value of each field.
    let mut options: softfault_engine_options = unsafe { core::mem::zeroed() };
    options.size = size_of::<softfault_engine_options>();
    options
}

/// An engine that serves all of a file, however small it is.
#[derive(Clone, Copy)]
pub struct Engine(pub *const softfault_engine);

// SAFETY: any thread may use an engine.
unsafe impl Send for Engine {}
// SAFETY: the same.
unsafe impl Sync for Engine {}

pub fn own_engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    *ENGINE.get_or_init(|| {
        let mut options = engine_options();
        options.memory = 64 << 20;
        options.reads = SOFTFAULT_READS_DIRECT;
        options.allow_kernel_maps = SOFTFAULT_ALLOW_KERNEL_MAPS_NO;
        options.small_maps = -1;
        // SAFETY: a structure of its size.
        let engine = unsafe { softfault_engine_new(&options) };
        assert!(!engine.is_null(), "{}", text());
        Engine(engine)
    })
}

/// An engine that serves maps which write to their files.
pub fn writing_engine() -> Engine {
    let mut options = engine_options();
    options.memory = 64 << 20;
    options.coherence = SOFTFAULT_COHERENCE_ENGINE;
    // SAFETY: a structure of its size.
    let engine = unsafe { softfault_engine_new(&options) };
    assert!(!engine.is_null(), "{}", text());
    Engine(engine)
}

/// The default engine, by which the kernel maps small files.
pub const DEFAULT: Engine = Engine(core::ptr::null());

/// mmap's arguments, but for the address.
#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    pub length: usize,
    pub prot: c_int,
    pub flags: c_int,
    pub fd: c_int,
    pub offset: libc::off_t,
}

impl Arguments {
    pub fn ours(&self, engine: Engine) -> Result<*mut c_void, c_int> {
        self.ours_at(core::ptr::null_mut(), engine)
    }

    /// At an address, if the flags say so.
    pub fn ours_at(&self, addr: *mut c_void, engine: Engine) -> Result<*mut c_void, c_int> {
        let options = softfault_map_options {
            size: size_of::<softfault_map_options>(),
            engine: engine.0,
        };
        let Self {
            length,
            prot,
            flags,
            fd,
            offset,
        } = *self;
        // SAFETY: a structure of its size, whose engine is never freed.
        let addr = unsafe { softfault_mmap_ex(addr, length, prot, flags, fd, offset, &options) };
        if addr == libc::MAP_FAILED {
            Err(errno())
        } else {
            Ok(addr)
        }
    }

    pub fn kernels(&self) -> Result<*mut c_void, c_int> {
        self.kernels_at(core::ptr::null_mut())
    }

    /// At an address, if the flags say so: of a map of the test's, or where nothing is.
    pub fn kernels_at(&self, addr: *mut c_void) -> Result<*mut c_void, c_int> {
        let Self {
            length,
            prot,
            flags,
            fd,
            offset,
        } = *self;
        // SAFETY: a new mapping, at an address of the kernel's choice, or one that the test has.
        let addr = unsafe { libc::mmap(addr, length, prot, flags, fd, offset) };
        if addr == libc::MAP_FAILED {
            Err(errno())
        } else {
            Ok(addr)
        }
    }
}

/// Both.
pub struct Twin {
    pub ours: *mut u8,
    pub kernels: *mut u8,
    pub length: usize,
}

impl Twin {
    pub fn of(arguments: Arguments, engine: Engine) -> Self {
        let ours = arguments.ours(engine);
        let ours = ours.unwrap_or_else(|errno| panic!("{arguments:?}: {errno}: {}", text()));
        Self {
            ours: ours.cast(),
            kernels: arguments.kernels().unwrap().cast(),
            length: arguments.length,
        }
    }

    /// Private memory.
    pub fn anonymous(pages: usize) -> Self {
        Self::of(anonymous(pages), own_engine())
    }

    /// A file, over the engine.
    pub fn of_file(file: &File, pages: usize, prot: c_int, flags: c_int) -> Self {
        let arguments = of_file(file, pages, prot, flags);
        Self::of(arguments, own_engine())
    }

    pub fn at(&self, page: usize) -> (*mut c_void, *mut c_void) {
        let offset = page * PAGE;
        // SAFETY: within the maps, or right behind them.
        unsafe {
            (
                self.ours.add(offset).cast(),
                self.kernels.add(offset).cast(),
            )
        }
    }

    /// Bytes of some pages of both.
    pub fn bytes(&self, page: usize, count: usize) -> (&[u8], &[u8]) {
        let (ours, kernels) = self.at(page);
        // SAFETY: the test has them mapped.
        unsafe {
            (
                core::slice::from_raw_parts(ours.cast(), count * PAGE),
                core::slice::from_raw_parts(kernels.cast(), count * PAGE),
            )
        }
    }

    pub fn same(&self, page: usize, count: usize) {
        let (ours, kernels) = self.bytes(page, count);
        assert!(ours == kernels, "pages {page}..{} differ", page + count);
    }

    /// Writes to a byte of both.
    pub fn write(&self, offset: usize, byte: u8) {
        // SAFETY: the test has them mapped to be written to.
        unsafe {
            self.ours.add(offset).write_volatile(byte);
            self.kernels.add(offset).write_volatile(byte);
        }
    }

    /// Unmaps some pages of ours, and keeps the addresses of the kernel's twin reserved (PROT_NONE): the test maps there again, and
    /// another thread's mapping could come to lie in a hole.
    pub fn unmap_to_map_again(&self, page: usize, count: usize) -> Answer {
        let (ours, kernels) = self.at(page);
        let nothing = Arguments {
            prot: libc::PROT_NONE,
            flags: ANONYMOUS | libc::MAP_FIXED,
            ..anonymous(count)
        };
        assert_eq!(nothing.kernels_at(kernels), Ok(kernels));
        // SAFETY: nobody uses them any more.
        answer(unsafe { softfault_munmap(ours, count * PAGE) })
    }

    /// Unmaps some pages of both.
    pub fn unmap(&self, page: usize, count: usize) -> (Answer, Answer) {
        let (ours, kernels) = self.at(page);
        // SAFETY: nobody uses them any more.
        unsafe {
            (
                answer(softfault_munmap(ours, count * PAGE)),
                answer(libc::munmap(kernels, count * PAGE)),
            )
        }
    }
}

pub const READ: c_int = libc::PROT_READ;
pub const WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
pub const ANONYMOUS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

pub fn anonymous(pages: usize) -> Arguments {
    Arguments {
        length: pages * PAGE,
        prot: WRITE,
        flags: ANONYMOUS,
        fd: -1,
        offset: 0,
    }
}

pub fn of_file(file: &File, pages: usize, prot: c_int, flags: c_int) -> Arguments {
    Arguments {
        length: pages * PAGE,
        prot,
        flags,
        fd: file.as_raw_fd(),
        offset: 0,
    }
}

/// A file without a name, of bytes that say where they are.
pub fn file(bytes: usize) -> File {
    // Not O_TMPFILE: file systems of networks do not have it.
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = format!("twin-{}-{number}", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    let mut file = options.open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(&content(bytes)).unwrap();
    file
}

/// The same, for maps that are to share a window: a file's stamps tell its changes apart only after a tick of their
/// clock.
pub fn aged_file(bytes: usize) -> File {
    let made = file(bytes);
    std::thread::sleep(std::time::Duration::from_millis(60));
    made
}

pub fn content(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect()
}

/// Unmaps a map that the test does not use any more.
pub fn unmap(addr: *mut c_void, length: usize) {
    // SAFETY: nobody uses it any more.
    let said = answer(unsafe { softfault_munmap(addr, length) });
    assert_eq!(said, Ok(()), "{}", text());
}

/// A pipe that does not block.
pub fn pipe() -> [c_int; 2] {
    let mut ends = [0; 2];
    // SAFETY: fills both.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) };
    assert_eq!(made, 0);
    ends
}
