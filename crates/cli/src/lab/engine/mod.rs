//! The interface of an engine for the lab's workloads; a file for each engine, and `build` chooses one.
//! `pread` is no map and reads by itself (`reader`).

pub mod build;
mod cached;
mod direct;
mod huge;
pub mod huge_soft;
mod kernel;
mod soft;
mod softfault;
pub mod stored;
mod written;

use super::stats::EngineStats;
use ::softfault::soft::SoftFork;
use std::fs::File;
use std::io;
use std::ops::Range;
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

    /// Forks the owner of the maps: the process, whose child exits at once, or a space.
    fn fork(&self) -> io::Result<Forked> {
        // SAFETY: the child calls nothing but _exit, which is allowed with any locks of the parent's threads.
        match unsafe { libc::fork() } {
            // SAFETY: _exit has no preconditions.
            0 => unsafe { libc::_exit(0) },
            child if child < 0 => Err(io::Error::last_os_error()),
            child => Ok(Forked::Process(child)),
        }
    }

    /// Maps a file to be written to.
    fn map_writable(&self, _file: &File) -> io::Result<Box<dyn WritableMapping>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Its counts, if it has some.
    fn stats(&self) -> Option<EngineStats>;
}

/// The result of a fork.
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

    /// Brings ranges of offsets, which the mapping must have, into memory by one call, or as near as it comes to
    /// that. Where the caller knows that all are `present`, no read has to be started.
    fn bring_in(&self, _ranges: &[Range<usize>], _present: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Fills `buffer` with the bytes from `offset` on, which the mapping must have.
    fn read_at(&self, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = self
            .bytes()
            .expect("an engine that loads do not reach reads itself");
        buffer.copy_from_slice(&bytes[offset..offset + buffer.len()]);
        Ok(())
    }
}

/// A file that several threads write to by stores.
pub trait WritableMapping: Send + Sync {
    /// Its first byte.
    fn start(&self) -> NonNull<u8>;

    /// Returns when the written data is on the device.
    fn flush(&self) -> io::Result<()>;

    /// Makes the file, which it has all of, and the map longer. Its first byte may be elsewhere afterwards.
    fn grow(&mut self, file: &File, bytes: usize) -> io::Result<()>;
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
        let start = self
            .start()
            .expect("an engine that loads do not reach reads itself");
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
            .expect("an engine that stores do not reach writes itself");
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

/// Huge memory that processes, or spaces, share.
pub trait HugeFile: Sync {
    /// Where one of them maps it; nothing is mapped yet.
    fn space(&self) -> Result<Box<dyn HugeSpace + '_>, String>;

    /// Gives all of its pages back.
    fn empty(&self) -> Result<(), String>;
}

/// One's own mappings of it, one at a time.
pub trait HugeSpace {
    /// Maps all of it for reading and writing.
    fn map(&mut self) -> Result<(), String>;

    /// Writes a word at a byte of the mapping, and returns the old word.
    fn swap(&mut self, at: u64, word: u64) -> Result<u64, String>;

    /// The sum of all words of a huge page.
    fn sum(&mut self, page: u64) -> Result<u64, String>;

    /// Writes a word all over a huge page.
    fn fill(&mut self, page: u64, word: u64) -> Result<(), String>;

    /// Unmaps it, and returns the faults in it that the engine itself served.
    fn unmap(&mut self) -> u64;
}
