//! Errors of the library, as values.

use crate::errno::errno;
use crate::signal::without_write_signals;
use core::fmt;
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::{MapError, NodeError};
use softfault_engine::mm::MmError;
use softfault_engine::mmu::MmuError;
use softfault_engine::store::StoreError;
use std::error::Error;
use std::io::{self, ErrorKind};

pub use softfault_engine::fault::FaultError as EngineFaultError;

/// Why a page could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultError {
    /// The range is past the present end of the file. A plain touch
    /// there raises SIGBUS.
    BeyondEnd,
    /// Reading failed with this errno (`errno(3)`), or, for calls that write to a file, writing.
    Io(i32),
    /// The budget has no room for the pages: pins or anonymous memory hold too much of it.
    NoMemory,
    /// The pool of huge pages is empty, and the map has no reserved page left.
    PoolEmpty,
    /// The range is not within the map.
    OutOfRange,
    /// The map is read-only.
    ReadOnly,
    /// The range was not in memory at the deadline.
    TimedOut,
    /// This process is a child of the process that made the map or engine. The map is a shared map of a
    /// file, or private memory that the child could not take over.
    Forked,
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeyondEnd => f.write_str("the range is past the present end of the file"),
            Self::Io(errno) => write!(
                f,
                "I/O error on the file or the swap file: {}",
                io::Error::from_raw_os_error(*errno)
            ),
            Self::NoMemory => f.write_str(
                "the memory budget has no room for the pages: drop pins, locks or private memory, \
                 give the engine swap, or raise the budget",
            ),
            Self::PoolEmpty => f.write_str(
                "the pool of huge pages is empty: `sysctl vm.nr_hugepages=N` makes it larger",
            ),
            Self::OutOfRange => f.write_str("the range is not within the map"),
            Self::ReadOnly => f.write_str("the map is read-only"),
            Self::TimedOut => f.write_str("the pages were not in memory at the deadline"),
            Self::Forked => f.write_str(
                "the map, or its engine, belongs to the parent process: \
                 map again in the child, over an engine of the child",
            ),
        }
    }
}

impl Error for FaultError {}

impl From<EngineFaultError> for FaultError {
    fn from(error: EngineFaultError) -> Self {
        match error {
            EngineFaultError::BeyondEnd => Self::BeyondEnd,
            EngineFaultError::Io(errno) => Self::Io(errno),
            EngineFaultError::Short => Self::Io(libc::EIO),
            EngineFaultError::NoMemory => Self::NoMemory,
            EngineFaultError::NotMapped => Self::OutOfRange,
            EngineFaultError::Protection => Self::ReadOnly,
        }
    }
}

impl From<FaultError> for io::Error {
    fn from(error: FaultError) -> Self {
        let kind = match error {
            FaultError::BeyondEnd => io::ErrorKind::UnexpectedEof,
            FaultError::Io(errno) => return io::Error::from_raw_os_error(errno),
            FaultError::NoMemory | FaultError::PoolEmpty => io::ErrorKind::OutOfMemory,
            FaultError::OutOfRange | FaultError::ReadOnly => io::ErrorKind::InvalidInput,
            FaultError::TimedOut => io::ErrorKind::TimedOut,
            FaultError::Forked => io::ErrorKind::Unsupported,
        };
        io::Error::new(kind, error)
    }
}

/// The error of a store, as an `io::Error`.
pub(crate) fn store(error: StoreError) -> io::Error {
    FaultError::from(EngineFaultError::from(error)).into()
}

/// The error of making page tables, as an `io::Error`.
pub(crate) fn mmu(error: MmuError) -> io::Error {
    match error {
        MmuError::Closed(errno) => closed(errno),
        MmuError::System(libc::EAGAIN) => no_memory(
            "the kernel refuses to map: mlockall(MCL_FUTURE) is in force and RLIMIT_MEMLOCK is \
             used up (raise the limit with `ulimit -l`, or call munlockall)",
        ),
        MmuError::System(errno) => io::Error::from_raw_os_error(errno),
        MmuError::NoMemory | MmuError::Gone => no_room(),
    }
}

/// The error of a map for which the system has no room.
pub(crate) fn no_room() -> io::Error {
    no_memory(
        "cannot map: no memory, address space or descriptor is left (see ulimit -v, ulimit -n, vm.max_map_count)",
    )
}

/// The error of making a map, as an `io::Error`.
pub(crate) fn map(error: MapError) -> io::Error {
    match error {
        MapError::Mmu(error) => mmu(error),
        MapError::Budget(short) => {
            let kib = |pages: u64| pages.saturating_mul(PAGE_SIZE as u64 >> 10);
            let (needed, left, limit) = (kib(short.needed), kib(short.left), kib(short.limit));
            no_memory(&format!(
                "the page tables of the map need {needed} KiB of the memory budget, and \
                 {left} KiB of the {limit} KiB for maps are free: drop maps or pins, or raise the budget"
            ))
        }
    }
}

/// The error of changing mappings, as an `io::Error`.
pub(crate) fn mm(error: MmError) -> io::Error {
    match error {
        MmError::NoMemory => no_memory("the engine has no memory for another mapping"),
        MmError::Locked => invalid("pages of the range are locked in memory: unlock them first"),
        MmError::NotAnonymous => {
            invalid("the range maps a file: only anonymous memory can be freed")
        }
        MmError::Empty => invalid("the range is empty"),
        MmError::Misaligned => invalid("the range does not begin and end at page boundaries"),
        MmError::Overlap => invalid("another mapping is in the range"),
        MmError::Overflow => invalid("the range ends beyond all addresses, or beyond the file's"),
        MmError::Unmapped => invalid("the range is not within the map"),
    }
}

/// An error with a text of ours, which has that of `error`, and with its errno behind it.
#[derive(Debug)]
struct Told {
    text: String,
    error: io::Error,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Told {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// `error`, in other words.
pub(crate) fn told(error: io::Error, text: String) -> io::Error {
    io::Error::new(error.kind(), Told { text, error })
}

/// The errno of an error, for languages that have it; of one without, the nearest.
#[doc(hidden)]
pub fn errno_of(error: &io::Error) -> i32 {
    if let Some(errno) = error.raw_os_error() {
        return errno;
    }
    let source = error.source().and_then(|source| source.downcast_ref());
    if let Some(source) = source {
        return errno_of(source);
    }
    match error.kind() {
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::InvalidInput | ErrorKind::InvalidData => libc::EINVAL,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::UnexpectedEof => libc::EFAULT,
        ErrorKind::StorageFull => libc::ENOSPC,
        ErrorKind::FileTooLarge => libc::EFBIG,
        ErrorKind::WouldBlock => libc::EAGAIN,
        ErrorKind::ResourceBusy => libc::EBUSY,
        ErrorKind::NotADirectory => libc::ENOTDIR,
        ErrorKind::ReadOnlyFilesystem => libc::EROFS,
        ErrorKind::QuotaExceeded => libc::EDQUOT,
        _ => libc::EIO,
    }
}

/// A system call that failed, by its name.
pub(crate) fn call(name: &str, errno: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    let text = format!("{name}: {error}");
    told(error, text)
}

/// As [`call`], with the errno of the call that has just failed.
pub(crate) fn of_call(name: &str) -> io::Error {
    call(name, crate::errno::errno())
}

/// The error of pthread_create(3) and its like. EAGAIN is a limit of tasks, or of memory for a stack.
pub(crate) fn no_thread(errno: i32) -> io::Error {
    let why = io::Error::from_raw_os_error(errno);
    let text =
        format!("cannot start a thread: {why} (see ulimit -u, pids.max of the cgroup, ulimit -v)");
    told(why, text)
}

/// The error of an invalid argument.
pub(crate) fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// The error of a call that cannot be done on locked pages.
pub(crate) fn locked() -> io::Error {
    invalid("pages of the map are locked in memory: unlock them first")
}

/// The error of a shortage.
pub(crate) fn no_memory(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, message)
}

/// The error of a kernel that refuses userfaultfd, and the remedy. The texts of errors have no names of Rust: programs in other
/// languages get them, and programs under `softfault run`.
pub(crate) fn closed(errno: i32) -> io::Error {
    if matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOMEM) {
        return no_room();
    }
    if errno == libc::ENOENT {
        return no_proc();
    }
    let why = io::Error::from_raw_os_error(errno);
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "this process may not use userfaultfd ({why}): `softfault doctor` shows how to allow it"
        ),
    )
}

/// The error of a file of this process's or thread's in /proc that is not there.
pub(crate) fn no_proc() -> io::Error {
    let text = "/proc is not mounted in this root, or is another namespace's of processes";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// The error of a budget above the machine's memory and swap.
pub(crate) fn beyond_machine(asked: usize, machine: usize) -> io::Error {
    let mib = |bytes: usize| bytes >> 20;
    no_memory(&format!(
        "a memory budget of {} MiB is too large: this machine has {} MiB of memory and swap",
        mib(asked),
        mib(machine)
    ))
}

/// A budget above the engine's `max_memory`.
pub(crate) fn above_most(asked: usize, most: usize) -> io::Error {
    let (asked, most) = (asked >> 20, most >> 20);
    invalid(&format!(
        "a budget of {asked} MiB is above the engine's max_memory, {most} MiB: \
         make the engine with a larger one"
    ))
}

/// The error of making a budget of so many bytes, as an `io::Error`.
pub(crate) fn budget_of(asked: usize, error: NodeError) -> io::Error {
    match error {
        NodeError::BudgetTooSmall => {
            let least = softfault_engine::cache::node::MIN_BYTES >> 20;
            invalid(&format!(
                "a memory budget of {asked} bytes is too small: it is at least {least} MiB"
            ))
        }
        other => budget(other),
    }
}

/// The error of making a budget, as an `io::Error`.
pub(crate) fn budget(error: NodeError) -> io::Error {
    let least = softfault_engine::cache::node::MIN_BYTES >> 20;
    match error {
        NodeError::BudgetTooSmall => io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a memory budget is at least {least} MiB"),
        ),
        NodeError::BudgetTooLarge => io::Error::new(
            io::ErrorKind::InvalidInput,
            "the budget is above the engine's max_memory",
        ),
        NodeError::NoMemory => io::Error::new(
            io::ErrorKind::OutOfMemory,
            "the enclosing budget, or the machine, does not have that much memory",
        ),
        NodeError::Held => no_memory(
            "the budget is too small for the present maps, pins and private memory: \
             drop some of them first, or ask for a larger budget",
        ),
    }
}

/// Prints a message that cannot be returned to a caller: one line, in one write. A closed standard error is ignored.
pub(crate) fn print_line(message: &str) {
    print(&format!("softfault: {}\n", message.replace('\n', " ")));
}

/// Writes to the standard error, in one write, without a signal. A file that is full, or a pipe without a reader, is ignored; a handler that
/// interrupts it is not.
pub(crate) fn print(text: &str) {
    let write = || {
        // SAFETY: the bytes are the text's.
        let written = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        usize::try_from(written).map_err(|_| errno())
    };
    while without_write_signals(write) == Err(libc::EINTR) {}
}

/// The result of a system call: success, or the errno.
pub(crate) fn answered(answer: core::ffi::c_int) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The error of a map that is longer than the file.
pub(crate) fn past_end() -> io::Error {
    let message = "the map would reach past the end of the file";
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// The error of a map that is longer than a slice may be.
pub(crate) fn too_large() -> io::Error {
    let message = "the map would be larger than the address space";
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_no_names_of_rust() {
        let errors = [
            closed(libc::EPERM),
            closed(libc::ENOENT),
            beyond_machine(2 << 30, 1 << 30),
            above_most(2 << 30, 1 << 30),
            budget(NodeError::BudgetTooLarge),
            mmu(MmuError::System(libc::EAGAIN)),
            mm(MmError::Locked),
            mmu(MmuError::NoMemory),
            no_thread(libc::EAGAIN),
            budget_of(4096, NodeError::BudgetTooSmall),
        ];
        for error in errors {
            assert!(!error.to_string().contains("::"), "{error}");
        }
    }
}
