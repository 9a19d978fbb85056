//! What can go wrong, as values.

use core::fmt;
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::{MapError, NodeError};
use softfault_engine::mm::MmError;
use softfault_engine::mmu::MmuError;
use softfault_engine::store::StoreError;
use std::io::{self, Write};

pub use softfault_engine::fault::FaultError as EngineFaultError;

/// Why a page could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultError {
    /// The range is past the end of the file, as it is now. A plain touch
    /// there raises SIGBUS.
    BeyondEnd,
    /// The read failed with this errno (`errno(3)`).
    Io(i32),
    /// The budget cannot hold it: too much is pinned, or is anonymous memory.
    NoMemory,
    /// The pool of huge pages has none left, and none was reserved.
    PoolEmpty,
    /// The range is not within the map.
    OutOfRange,
    /// The map may only be read.
    ReadOnly,
    /// It was not in memory at the deadline.
    TimedOut,
    /// This is a child of the process that made the map, which is of a file that is
    /// shared; or memory that the child could not take over.
    Forked,
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeyondEnd => f.write_str("past the end of the file: it was truncated"),
            Self::Io(errno) => write!(
                f,
                "reading the file failed: {}",
                io::Error::from_raw_os_error(*errno)
            ),
            Self::NoMemory => f.write_str("the memory budget cannot hold the pages"),
            Self::PoolEmpty => f.write_str(
                "the pool of huge pages is empty: `sysctl vm.nr_hugepages=N` makes it larger",
            ),
            Self::OutOfRange => f.write_str("the range is not within the map"),
            Self::ReadOnly => f.write_str("the map may only be read"),
            Self::TimedOut => f.write_str("the pages were not in memory at the deadline"),
            Self::Forked => f.write_str("the map belongs to the parent process"),
        }
    }
}

impl std::error::Error for FaultError {}

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

/// A store that failed, as an `io::Error`.
pub(crate) fn store(error: StoreError) -> io::Error {
    FaultError::from(EngineFaultError::from(error)).into()
}

/// Page tables that cannot be had, as an `io::Error`.
pub(crate) fn mmu(error: MmuError) -> io::Error {
    match error {
        MmuError::Closed(errno) => closed(errno),
        MmuError::System(libc::EAGAIN) => no_memory(
            "mlockall(MCL_FUTURE) is in force and RLIMIT_MEMLOCK is used up: the kernel maps \
             nothing more, not even a page (`ulimit -l` raises it, munlockall ends it)",
        ),
        MmuError::System(errno) => io::Error::from_raw_os_error(errno),
        MmuError::NoMemory | MmuError::Gone => no_memory("no address space for the map"),
    }
}

/// A map that cannot be had, as an `io::Error`.
pub(crate) fn map(error: MapError) -> io::Error {
    match error {
        MapError::Mmu(error) => mmu(error),
        MapError::Budget(short) => {
            let kib = |pages: u64| pages.saturating_mul(PAGE_SIZE as u64 >> 10);
            let (needed, left, limit) = (kib(short.needed), kib(short.left), kib(short.limit));
            no_memory(&format!(
                "the map would hold {needed} KiB of the memory budget for its page tables, and \
                 {left} KiB of {limit} KiB are left for maps: drop maps or pins, or give the \
                 engine more (Builder::memory, Engine::set_memory, SOFTFAULT_MEMORY)"
            ))
        }
    }
}

/// Mappings that cannot be changed, as an `io::Error`.
pub(crate) fn mm(error: MmError) -> io::Error {
    match error {
        MmError::NoMemory => no_memory("no room for another mapping"),
        MmError::Locked => invalid("pages of the range are locked in memory"),
        MmError::NotAnonymous => invalid("the range is of a file: its pages cannot be freed"),
        MmError::Empty
        | MmError::Misaligned
        | MmError::Overlap
        | MmError::Overflow
        | MmError::Unmapped => invalid("the range is not within the map"),
    }
}

/// A system call that failed, by its name.
pub(crate) fn call(name: &str, errno: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// The same of the call that has just failed.
pub(crate) fn of_call(name: &str) -> io::Error {
    call(name, crate::errno::errno())
}

/// What a caller asked for and cannot have.
pub(crate) fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// What cannot be had of pages that are to stay.
pub(crate) fn locked() -> io::Error {
    invalid("pages of the map are locked in memory")
}

/// Something that there is not enough of.
pub(crate) fn no_memory(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, message)
}

/// Says what to do about a kernel that refuses userfaultfd.
pub(crate) fn closed(errno: i32) -> io::Error {
    let why = io::Error::from_raw_os_error(errno);
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "userfaultfd is closed here ({why}): `softfault doctor` says how to open it; \
             Fallback::Kernel maps plainly instead, Builder::build_soft serves calls without it"
        ),
    )
}

/// A budget that is beyond the machine.
pub(crate) fn beyond_machine(asked: usize, machine: usize) -> io::Error {
    let mib = |bytes: usize| bytes >> 20;
    no_memory(&format!(
        "a memory budget of {} MiB was asked for, and this machine has {} MiB of memory and swap",
        mib(asked),
        mib(machine)
    ))
}

/// A budget that is above what an engine was made for.
pub(crate) fn above_most(asked: usize, most: usize) -> io::Error {
    let (asked, most) = (asked >> 20, most >> 20);
    invalid(&format!(
        "a budget of {asked} MiB was asked for, and the engine's most_memory is {most} MiB"
    ))
}

/// A budget that cannot be had, as an `io::Error`.
pub(crate) fn budget(error: NodeError) -> io::Error {
    let least = softfault_engine::cache::node::LEAST_BYTES >> 20;
    match error {
        NodeError::BudgetTooSmall => io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a memory budget is at least {least} MiB"),
        ),
        NodeError::BudgetTooLarge => io::Error::new(
            io::ErrorKind::InvalidInput,
            "the budget is above the engine's most_memory",
        ),
        NodeError::NoMemory => io::Error::new(
            io::ErrorKind::OutOfMemory,
            "the enclosing budget, or the machine, has not that much memory",
        ),
        NodeError::Held => no_memory(
            "maps, pins and private memory hold more than so small a budget leaves to faults",
        ),
    }
}

/// Says what no caller can be told: one line, in one write. Where the standard error is closed, nobody wants it.
pub(crate) fn say(message: &str) {
    let line = format!("softfault: {}\n", message.replace('\n', " "));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// What the system answered: nothing, or that errno says why not.
pub(crate) fn answered(answer: core::ffi::c_int) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Less than a file has.
pub(crate) fn past_end() -> io::Error {
    let message = "the map would reach past the end of the file";
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// More than a slice may have.
pub(crate) fn too_large() -> io::Error {
    let message = "the map would be larger than an address can say";
    io::Error::new(io::ErrorKind::InvalidData, message)
}
