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
    /// The size of its pages. Without it: 2 MiB. Memory of pages of 1 GiB for which the machine has no
    /// pool is made of smaller ones.
    pub fn page_size(mut self, size: HugeSize) -> Self {
        self.size = size;
        self
    }

    /// What /proc shows it as.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Made of this and nothing else. Without it: the best that the machine has.
    pub fn backing(mut self, backing: HugeBacking) -> Self {
        self.backing = Some(backing);
        self
    }

    /// Makes memory of so many bytes, a multiple of a page. It is zeros, and takes none yet: what is mapped is
    /// reserved, and what is touched is taken.
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

/// Why there is no such file.
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
