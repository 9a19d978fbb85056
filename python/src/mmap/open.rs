//! The arguments of `mmap`, and the memory that they ask for.

use crate::failure::raised;
use crate::memory::{Memory, page_size};
use crate::plain::Plain;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use softfault::{Engine, MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The allowed accesses to a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Default,
    Read,
    Write,
    Copy,
}

impl Access {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Default => "ACCESS_DEFAULT",
            Self::Read => "ACCESS_READ",
            Self::Write => "ACCESS_WRITE",
            Self::Copy => "ACCESS_COPY",
        }
    }
}

/// The arguments, as mmap(2) has them.
pub(super) struct Arguments {
    fd: Option<i32>,
    length: usize,
    flags: i32,
    prot: i32,
    offset: u64,
    access: Access,
}

/// Memory, and its file.
pub(super) struct Opened {
    pub(super) memory: Memory,
    pub(super) file: Option<File>,
}

/// Flags that change nothing for an engine's map.
const NO_MATTER: i32 = libc::MAP_NORESERVE
    | libc::MAP_NONBLOCK
    | libc::MAP_DENYWRITE
    | libc::MAP_EXECUTABLE
    | libc::MAP_POPULATE
    | libc::MAP_ANONYMOUS;

const READ: i32 = libc::PROT_READ;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

impl Arguments {
    pub(super) fn new(
        fd: i32,
        length: isize,
        (mut flags, mut prot, access): (i32, i32, i32),
        offset: i64,
    ) -> PyResult<Self> {
        let length = usize::try_from(length)
            .map_err(|_| PyOverflowError::new_err("memory mapped length must be positive"))?;
        let offset = u64::try_from(offset)
            .map_err(|_| PyOverflowError::new_err("memory mapped offset must be positive"))?;
        if access != 0 && (flags != libc::MAP_SHARED || prot != READ_WRITE) {
            let text = "mmap can't specify both access and flags, prot.";
            return Err(PyValueError::new_err(text));
        }
        let access = match access {
            0 if prot & READ_WRITE == READ_WRITE => Access::Default,
            0 if prot & libc::PROT_WRITE != 0 => Access::Write,
            0 => Access::Read,
            1 => {
                prot = READ;
                Access::Read
            }
            2 => Access::Write,
            3 => {
                flags = libc::MAP_PRIVATE;
                Access::Copy
            }
            _ => return Err(PyValueError::new_err("mmap invalid access parameter.")),
        };
        // As the standard library: -1 is memory.
        let fd = (fd != -1).then_some(fd);
        if fd.is_none() {
            flags |= libc::MAP_ANONYMOUS;
        }
        Ok(Self {
            fd,
            length,
            flags,
            prot,
            offset,
            access,
        })
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Memory of the map's own, which may be written to.
    pub(super) fn is_writable_memory(&self) -> bool {
        self.fd.is_none() && self.is_private() && self.prot & libc::PROT_WRITE != 0
    }

    pub(super) fn is_private(&self) -> bool {
        self.flags & libc::MAP_TYPE == libc::MAP_PRIVATE
    }

    /// MAP_POPULATE, which the kernel has heeded for a map of its own.
    pub(super) fn is_to_be_populated(&self) -> bool {
        self.flags & libc::MAP_POPULATE != 0
    }

    /// True if an engine may serve it: memory that children share is the kernel's, and so is a map that needs more than an
    /// engine knows.
    pub(super) fn wants_engine(&self) -> bool {
        let kind = self.flags & libc::MAP_TYPE;
        let shared = kind == libc::MAP_SHARED && self.fd.is_some();
        let prot = [READ, READ_WRITE, libc::PROT_WRITE].contains(&self.prot);
        // MAP_ANONYMOUS is memory, whatever the descriptor is of.
        if self.fd.is_some() && self.flags & libc::MAP_ANONYMOUS != 0 {
            return false;
        }
        (self.is_private() || shared) && self.flags & !(libc::MAP_TYPE | NO_MATTER) == 0 && prot
    }

    /// Makes the map, over an engine if one is to serve it. Called without the interpreter's lock.
    pub(super) fn open(&self, engine: Option<&Engine>) -> PyResult<Opened> {
        let Some(fd) = self.fd else {
            if self.length == 0 {
                return Err(raised(io::Error::from_raw_os_error(libc::EINVAL)));
            }
            let memory = match engine {
                Some(engine) => self.anonymous(engine),
                None => self.plain(None, self.length),
            };
            let memory = memory.map_err(raised)?;
            return Ok(Opened { memory, file: None });
        };
        let file = own(fd).map_err(raised)?;
        let stat = file.metadata().map_err(raised)?;
        let length = match stat.is_file() {
            true => self.length_of_file(stat.len())?,
            false => self.length,
        };
        let memory = match engine.filter(|_| stat.is_file()) {
            Some(engine) => self.of_file(engine, file.as_fd(), length),
            None => self.plain(Some(file.as_fd()), length),
        };
        Ok(Opened {
            memory: memory.map_err(raised)?,
            file: Some(file),
        })
    }

    fn length_of_file(&self, size: u64) -> PyResult<usize> {
        let refuse = |text: &'static str| Err(PyValueError::new_err(text));
        match self.length {
            0 if size == 0 => refuse("cannot mmap an empty file"),
            0 if self.offset >= size => refuse("mmap offset is greater than file size"),
            0 => match isize::try_from(size - self.offset) {
                Ok(length) => Ok(length as usize),
                Err(_) => refuse("mmap length is too large"),
            },
            length if self.offset > size || size - self.offset < length as u64 => {
                refuse("mmap length is greater than file size")
            }
            length => Ok(length),
        }
    }

    fn plain(&self, file: Option<BorrowedFd<'_>>, length: usize) -> io::Result<Memory> {
        let how = (self.prot, self.flags);
        Ok(Memory::Plain(Plain::new(
            file,
            length,
            how,
            self.offset as i64,
        )?))
    }

    fn options(&self, length: usize) -> MmapOptions {
        let mut options = MmapOptions::new();
        options.len(length).offset(self.offset);
        options
    }

    fn anonymous(&self, engine: &Engine) -> io::Result<Memory> {
        let map = self.options(self.length).map_anon_in(engine)?;
        self.protected(map.into())
    }

    fn of_file(&self, engine: &Engine, file: BorrowedFd<'_>, length: usize) -> io::Result<Memory> {
        if !self.offset.is_multiple_of(page_size() as u64) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.is_open_for_it(file)?;
        let options = self.options(length);
        let file = file.as_raw_fd();
        if self.is_private() {
            // SAFETY: the interpreter has copies of the bytes and pointers to them, and no references.
            let map = unsafe { options.map_copy_in(engine, file) }?;
            return self.protected(map.into());
        }
        if self.prot & libc::PROT_WRITE != 0 {
            // SAFETY: the same.
            let map = unsafe { options.map_mut_in(engine, file) }?;
            return Ok(Memory::Served(Box::new(map.into())));
        }
        // SAFETY: the same.
        let map = unsafe { options.map_in(engine, file) }?;
        Ok(Memory::Served(Box::new(map.into())))
    }

    /// EACCES where mmap(2) has it.
    fn is_open_for_it(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: only asks.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        let mode = flags & libc::O_ACCMODE;
        let writes =
            self.flags & libc::MAP_TYPE == libc::MAP_SHARED && self.prot & libc::PROT_WRITE != 0;
        match mode == libc::O_WRONLY || writes && mode != libc::O_RDWR {
            true => Err(io::Error::from_raw_os_error(libc::EACCES)),
            false => Ok(()),
        }
    }

    fn protected(&self, mut map: MmapRaw) -> io::Result<Memory> {
        if self.prot == READ {
            map.protect(false)?;
        }
        Ok(Memory::Served(Box::new(map)))
    }
}

/// A descriptor of our own: the map keeps its file when the caller's is closed.
fn own(fd: i32) -> io::Result<File> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: lent for this call; one that is not open is an error of it.
    let lent = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(File::from(lent.try_clone_to_owned()?))
}
