//! Making huge memory.

use super::machine::remedy;
use super::memory::HugeMemory;
use crate::error::{self, invalid};
use crate::huge_faults::HugeBacking;
use crate::huge_faults::HugeSize;
use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Settings of a [`HugeMemory`].
#[derive(Debug, Clone, Default)]
pub struct HugeMemoryBuilder {
    size: HugeSize,
    name: Option<String>,
    backing: Option<HugeBacking>,
}

impl HugeMemoryBuilder {
    /// The page size. Default: 2 MiB. If the machine has no pool of 1 GiB pages, memory with that page size is
    /// made of smaller pages that are of no pool: a pool of 2 MiB pages is used only if that is the page size.
    pub fn page_size(mut self, size: HugeSize) -> Self {
        self.size = size;
        self
    }

    /// The name of the memory in /proc.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Makes the memory of this backing and of no other. Default: the best backing that the machine has now for the page size.
    ///
    /// `create` fails if the kernel has no huge pages of this size. It looks neither at the pages that the pool has nor at the setting
    /// of transparent pages, since both may change while the memory lives. If the pool is too small, a map that reserves is an error, and a
    /// touch of a map that does not raises SIGBUS. Where transparent huge pages are switched off, the pages are small.
    pub fn backing(mut self, backing: HugeBacking) -> Self {
        self.backing = Some(backing);
        self
    }

    /// Makes memory of `bytes` bytes, a multiple of the page size. It is all zeros and has no pages yet: a map reserves
    /// pages, and a touch takes them.
    pub fn create(self, bytes: u64) -> io::Result<HugeMemory> {
        let size = self.size;
        if bytes == 0 || !bytes.is_multiple_of(size.bytes() as u64) {
            return Err(invalid(&format!(
                "huge memory of {bytes} bytes: it has to be a multiple of {size}, and not 0"
            )));
        }
        let backing = self.backing.unwrap_or_else(|| HugeBacking::best(size));
        let name = self.name.as_deref().unwrap_or("softfault-huge");
        let name = CString::new(name).map_err(|_| invalid("the name has a zero byte"))?;
        let fd = memfd(&name, backing, size).map_err(|error| refused(error, backing, size))?;
        // SAFETY: lengthens a file that was just made.
        if unsafe { libc::ftruncate(std::os::fd::AsRawFd::as_raw_fd(&fd), bytes as i64) } != 0 {
            return Err(error::of_call("ftruncate"));
        }
        HugeMemory::over(fd, backing, size)
    }
}

fn memfd(name: &CString, backing: HugeBacking, size: HugeSize) -> io::Result<OwnedFd> {
    let huge = match backing {
        HugeBacking::Hugetlb => libc::MFD_HUGETLB | size.shift() << libc::MFD_HUGE_SHIFT,
        _ => 0,
    };
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | huge;
    // SAFETY: the name is a string that ends in zero.
    match unsafe { libc::memfd_create(name.as_ptr(), flags) } {
        // SAFETY: just made, and nobody else's.
        fd if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(error::of_call("memfd_create")),
    }
}

/// The error of a file that cannot be made.
fn refused(error: io::Error, backing: HugeBacking, size: HugeSize) -> io::Error {
    if backing != HugeBacking::Hugetlb {
        return error;
    }
    let text = format!(
        "the machine has no huge pages of {size} ({error}): {} makes a pool, where its kernel and \
         processor know them",
        remedy(size, 512)
    );
    io::Error::new(io::ErrorKind::Unsupported, text)
}
