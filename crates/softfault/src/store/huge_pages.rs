//! Files of huge pages, on hugetlbfs: the kernel maps, protects and unmaps whole ones only.

use super::Descriptor;
use core::mem::MaybeUninit;
use libc::c_long;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `HUGETLBFS_MAGIC` of `linux/magic.h`.
pub(crate) const HUGETLBFS: u64 = 0x958_458f6;

/// Bytes of a page of a file, if it has huge ones.
pub(crate) fn huge_page_of(fd: BorrowedFd<'_>) -> Option<usize> {
    huge_page(|about| {
        // SAFETY: fills the structure.
        unsafe { libc::fstatfs(fd.as_raw_fd(), about) == 0 }
    })
}

/// The same of a file of ours.
pub(crate) fn huge_page_of_own(file: &Descriptor) -> Option<usize> {
    huge_page(|about| {
        let args = [about as usize, 0, 0, 0, 0];
        // SAFETY: fills the structure.
        unsafe { file.call(libc::SYS_fstatfs as c_long, args) }.is_ok()
    })
}

fn huge_page(ask: impl FnOnce(*mut libc::statfs) -> bool) -> Option<usize> {
    let mut about = MaybeUninit::<libc::statfs>::zeroed();
    let told = ask(about.as_mut_ptr());
    // SAFETY: zeros are valid, and so are the kernel's values.
    let about = unsafe { about.assume_init() };
    // Signed with glibc, unsigned with musl.
    (told && about.f_type as u64 == HUGETLBFS).then_some(about.f_bsize as usize)
}
