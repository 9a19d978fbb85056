//! What the lab's workloads use of an engine, behind one face. `pread` is no map and reads by itself
//! (`reader`).

use super::job::Swap;
use super::on::On;
use super::on_huge::HugeFile;
use super::stats::EngineStats;
use super::{on_direct, on_kernel, on_soft, on_softfault};
use memmap2::Advice;
use softfault::soft::SoftFork;
use std::fs::File;
use std::io;
use std::ptr::NonNull;

/// Something that maps files and anonymous memory.
pub trait Engine: Sync {
    /// Maps the whole of `file` for reading.
    fn map(&self, file: &File) -> io::Result<Box<dyn Mapping>>;

    /// Maps `bytes` bytes of zeros for reading and writing.
    fn map_anonymous(&self, bytes: usize) -> io::Result<Box<dyn Anonymous>>;

    /// Makes memory of `bytes` bytes in huge pages from the machine's pool, which processes can share.
    fn huge(&self, _bytes: u64) -> io::Result<Box<dyn HugeFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Forks what the maps are in: the process, whose child exits at once, or a space.
    fn fork(&self) -> io::Result<Forked> {
        // SAFETY: the child calls nothing but _exit, which is allowed whatever the parent's threads held.
        match unsafe { libc::fork() } {
            // SAFETY: _exit has no preconditions.
            0 => unsafe { libc::_exit(0) },
            child if child < 0 => Err(io::Error::last_os_error()),
            child => Ok(Forked::Process(child)),
        }
    }

    /// What it has counted, if it counts.
    fn stats(&self) -> Option<EngineStats>;
}

/// What came of a fork.
pub enum Forked {
    /// A child process.
    Process(i32),
    /// A second space in this process.
    Space(Box<SoftFork>),
}

impl Forked {
    /// Waits for a child process to end, or drops a space.
    pub fn end(self) -> Result<(), String> {
        let child = match self {
            Self::Process(child) => child,
            Self::Space(space) => {
                drop(space);
                return Ok(());
            }
        };
        wait_for(child)
    }
}

/// Waits for a child of fork, which must end well.
pub fn wait_for(child: i32) -> Result<(), String> {
    let mut status = 0;
    // SAFETY: `status` is live; the child is ours and nobody else waits for it.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(format!("cannot wait for a child of fork: {error}"));
        }
    }
    match (libc::WIFSIGNALED(status), status) {
        (_, 0) => Ok(()),
        (true, _) => Err(format!(
            "a child of fork died of signal {}",
            libc::WTERMSIG(status)
        )),
        (false, _) => Err(format!(
            "a child of fork ended with code {}",
            libc::WEXITSTATUS(status)
        )),
    }
}

/// A file mapped for reading.
pub trait Mapping: Send + Sync {
    /// The file's bytes, where loads reach them; otherwise `read_at` does. They must not change while
    /// they are looked at: the lab's files do not.
    fn bytes(&self) -> Option<&[u8]>;

    /// Fills `buffer` with the bytes from `offset` on, which the mapping must have.
    fn read_at(&self, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes().expect("what loads do not reach reads itself");
        buffer.copy_from_slice(&bytes[offset..offset + buffer.len()]);
        Ok(())
    }
}

/// Anonymous memory that several threads write to.
pub trait Anonymous: Send + Sync {
    /// Its first byte, where loads and stores reach it; otherwise `read_at` and `write_at` do.
    fn start(&self) -> Option<NonNull<u8>>;

    /// Whether only whole pages can be written, and reads cost as much as one.
    fn by_pages(&self) -> bool {
        false
    }

    /// Fills `buffer` with the bytes from `offset` on, which the memory must have.
    fn read_at(&self, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let start = self.start().expect("what loads do not reach reads itself");
        // SAFETY: callers stay within the length that they asked for, and `buffer` is none of it.
        unsafe {
            start
                .add(offset)
                .copy_to_nonoverlapping(NonNull::from(&mut *buffer).cast(), buffer.len())
        };
        Ok(())
    }

    /// Writes `bytes` from `offset` on, where the memory must have room.
    fn write_at(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let start = self
            .start()
            .expect("what stores do not reach writes itself");
        // SAFETY: as in `read_at`; no two threads write to the same byte.
        unsafe {
            start
                .add(offset)
                .copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len())
        };
        Ok(())
    }

    /// Reads one byte.
    fn read_byte(&self, offset: usize) -> io::Result<u8> {
        let mut byte = [0];
        self.read_at(offset, &mut byte)?;
        Ok(byte[0])
    }

    /// Writes one byte.
    fn write_byte(&self, offset: usize, byte: u8) -> io::Result<()> {
        self.write_at(offset, &[byte])
    }
}

/// The engine behind `on` with a budget of `memory` bytes, and swap if the work needs it; `None` for pread.
/// The error is the caller's to act on: a budget that is too small, a machine that does not allow it.
pub fn build(on: On, memory: u64, swap: Option<&Swap>) -> Result<Option<Box<dyn Engine>>, String> {
    Ok(match on {
        On::Kernel(_) => Some(on_kernel::build(None)),
        On::KernelRandom(_) => Some(on_kernel::build(Some(Advice::Random))),
        On::KernelSequential(_) => Some(on_kernel::build(Some(Advice::Sequential))),
        On::Pread => None,
        On::Direct => Some(on_direct::build(swap)?),
        On::Softfault(policies) => Some(on_softfault::build(memory, policies, swap)?),
        On::Soft(policies) => Some(on_soft::build(memory, policies, swap)?),
    })
}
