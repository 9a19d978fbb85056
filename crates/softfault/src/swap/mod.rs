//! Swap: a file of ours, to which anonymous memory is evicted.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! use softfault::{Engine, Swap};
//!
//! let engine = Engine::builder()
//!     .memory(1 << 30)
//!     .swap(Swap::in_dir("/var/tmp").bytes(8 << 30))
//!     .build()?;
//! # let _ = engine;
//! # Ok(())
//! # }
//! ```
//!
//! | file | has |
//! |---|---|
//! | `create` | a file without a name, or one whose name is removed at once; files that dead processes left |
//! | `clusters` | which parts of the file have space on the disk |
//! | `trim` | the thread that gives space back |
//! | `file` | the device: reads, writes, the engine's rings |
//! | `plain` | slots without compression |
//! | `packed` | compressed slots, at any place with room |
//! | `write` | many pages in one system call |
//! | `table` | a word or a bit a slot |
//! | `inherited` | the swap of a child: its parent's slots, for reading, and its own |
//! | `lifeline` | whether a child lives that may read slots of its parent |
//! | `backend` | the kind of swap of an engine and of its children |

mod backend;
mod clusters;
mod create;
mod file;
mod inherited;
mod lifeline;
mod packed;
mod plain;
mod table;
mod trim;
mod write;

pub(crate) use backend::SwapBackend;
pub use file::{SwapFile, on_swap_failure};
pub(crate) use lifeline::Lifeline;

use crate::machine::file_size_limit;
use crate::store::{Rings, RingsOnDemand};
use softfault_engine::PAGE_SIZE;
use softfault_engine::swap::{MOST_SLOTS, SwapDevice};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of swap for each byte of the budget, unless told otherwise.
const TIMES_MEMORY: u64 = 4;

/// Swap for anonymous memory that does not fit the budget: a file without a name in a
/// directory. The file is gone when the process ends, in any way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swap {
    dir: PathBuf,
    bytes: Option<u64>,
    compression: Compression,
}

/// Compression of pages in swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Pages are written without compression.
    #[default]
    None,
    /// Each page is compressed by lz4, in the thread that evicts it: less I/O,
    /// for some microseconds of processor time a page.
    Lz4,
}

impl Swap {
    /// Swap in a file in the directory `dir`. Avoid tmpfs, because its files are in memory.
    pub fn in_dir(dir: impl AsRef<Path>) -> Self {
        Self {
            dir: dir.as_ref().to_owned(),
            bytes: None,
            compression: Compression::None,
        }
    }

    /// The size of swap, in bytes of memory: 4 TiB at most. Disk space is taken 16 MiB at a
    /// time, when it is needed. Default: four times the engine's budget, as far as a file may have it.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Whether pages are compressed.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// The device for an engine whose budget is `memory`. For tests.
    #[doc(hidden)]
    pub fn open(&self, memory: usize, rings: Option<Arc<Rings>>) -> io::Result<SwapFile> {
        let bytes = self.bytes_for(memory)?;
        crate::required_calls::for_swap().map_err(|error| self.error(error))?;
        let file = SwapFile::create(&self.dir, bytes, self.compression, rings);
        file.map_err(|error| self.error(error))
    }

    /// Where the file is.
    #[doc(hidden)]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// True if there can be such a file now for an engine whose budget is `memory`.
    #[doc(hidden)]
    pub fn is_available(&self, memory: usize) -> bool {
        let Ok(dir) = CString::new(self.dir.as_os_str().as_bytes()) else {
            return false;
        };
        let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
        // In the calling thread, whose root and rights the child has; past all that may be in front of the C library.
        // SAFETY: makes a file without a name, and closes it.
        let made = unsafe {
            let number = libc::SYS_openat;
            let made = sync::system_call!(number, libc::AT_FDCWD, dir.as_ptr(), flags, 0o600);
            match made {
                0.. => sync::system_call!(libc::SYS_close, made) == 0,
                // There is another way in a directory that has no such files.
                _ => matches!(
                    io::Error::last_os_error().raw_os_error(),
                    Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)
                ),
            }
        };
        made && self.bytes_for(memory).is_ok()
    }

    /// The same in a child of fork, where it must not start a thread.
    fn open_in_child(&self, memory: usize, rings: Option<Arc<Rings>>) -> io::Result<SwapFile> {
        let bytes = self.bytes_for(memory)?;
        SwapFile::create_alone(&self.dir, bytes, self.compression, rings)
    }

    /// Bytes for an engine whose budget is `memory`: whole pages, and no more than a
    /// file may have.
    fn bytes_for(&self, memory: usize) -> io::Result<u64> {
        self.bytes_within(file_size_limit(), memory)
    }

    /// The same where a file may have `limit` bytes.
    fn bytes_within(&self, limit: u64, memory: usize) -> io::Result<u64> {
        let most = limit / PAGE_SIZE as u64 / self.compression.times_longer();
        let pages = match self.bytes {
            Some(bytes) => bytes / PAGE_SIZE as u64,
            // A page at least: where a file may not have it, the limit is the reason.
            None => (memory as u64 / PAGE_SIZE as u64 * TIMES_MEMORY)
                .min(most.min(MOST_SLOTS.into()))
                .max(1),
        };
        let wrong = |kind, what| Err(self.error(io::Error::new(kind, what)));
        if self.dir.as_os_str().is_empty() {
            return wrong(
                io::ErrorKind::InvalidInput,
                "the name of the directory is empty",
            );
        }
        match pages {
            0 => wrong(io::ErrorKind::InvalidInput, "the size is less than a page"),
            // The engine would use no more, and each page takes memory for its place.
            pages if pages > MOST_SLOTS.into() => wrong(
                io::ErrorKind::InvalidInput,
                "the size is above 4 TiB, the most that an engine has",
            ),
            // Else the first write would raise SIGXFSZ.
            pages if pages > most => wrong(
                io::ErrorKind::FileTooLarge,
                "the size is above the limit for a file: raise it with `ulimit -f`, or ask for less",
            ),
            pages => Ok(pages * PAGE_SIZE as u64),
        }
    }

    /// The length of a file with room for so many bytes of pages.
    #[doc(hidden)]
    pub fn file_bytes(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.compression.times_longer())
    }

    /// `error`, with the name of the directory.
    fn error(&self, error: io::Error) -> io::Error {
        // In one line, also if the name has line breaks.
        let dir = self.dir.display().to_string();
        let message = format!("swap in {}: {error}", dir.escape_debug());
        crate::error::told(error, message)
    }
}

/// The swap of an engine.
#[derive(Clone)]
pub(crate) enum SwapSource {
    /// No swap: anonymous memory stays in memory.
    None,
    /// A file of ours.
    File(Swap),
    /// A device of the caller.
    Device(Arc<dyn SwapDevice>),
}

impl SwapSource {
    /// The device for an engine whose budget is `memory`.
    pub(crate) fn open(
        &self,
        memory: usize,
        rings: &RingsOnDemand,
    ) -> io::Result<Option<SwapBackend>> {
        Ok(match self {
            Self::None => None,
            Self::Device(device) => Some(SwapBackend::Device(device.clone())),
            Self::File(swap) => {
                let file = Arc::new(swap.open(memory, rings.make().cloned())?);
                Some(SwapBackend::File(file))
            }
        })
    }
}

impl core::fmt::Debug for SwapSource {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::File(swap) => swap.fmt(f),
            Self::Device(_) => f.write_str("Device"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_times_the_budget_unless_told() {
        let swap = Swap::in_dir("/swap");
        assert_eq!(swap.bytes_for(1 << 20).unwrap(), 4 << 20);
        assert_eq!(swap.clone().bytes(8191).bytes_for(1 << 20).unwrap(), 4096);
        let none = swap.bytes(4095).bytes_for(1 << 20).unwrap_err();
        assert_eq!(
            none.to_string(),
            "swap in /swap: the size is less than a page"
        );
    }

    /// Failed before: no more than 4 TiB were used, without a word; and a size that no file has took memory until there was none.
    #[test]
    fn more_than_an_engine_has_is_an_error() {
        let most: u64 = 4 << 40;
        assert_eq!(most, u64::from(MOST_SLOTS) * PAGE_SIZE as u64);
        for compression in [Compression::None, Compression::Lz4] {
            let swap = Swap::in_dir("/swap").compression(compression);
            let within = |swap: &Swap| swap.bytes_within(i64::MAX as u64, 2 << 40);
            assert_eq!(within(&swap).unwrap(), most, "nobody asked for more");
            assert_eq!(within(&swap.clone().bytes(most)).unwrap(), most);
            for bytes in [most + PAGE_SIZE as u64, i64::MAX as u64, u64::MAX] {
                let error = within(&swap.clone().bytes(bytes)).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
                assert!(error.to_string().contains("above 4 TiB"), "{error}");
            }
        }
    }

    /// Failed before: a size that nobody gave was less than a page.
    #[test]
    fn where_no_file_may_have_a_page_the_limit_is_the_reason() {
        for swap in [Swap::in_dir("/swap"), Swap::in_dir("/swap").bytes(1 << 20)] {
            let error = swap.bytes_within(0, 1 << 20).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        }
    }
}
