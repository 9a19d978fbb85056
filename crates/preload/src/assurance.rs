//! How we know that no process writes to a file while it is mapped: pages that were read once stay right.

use crate::count::Decline;
use crate::decide::PAGE;
use crate::options;
use std::os::fd::RawFd;

/// Why a file stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assurance {
    /// Its file system cannot be written to.
    ReadOnlyFilesystem,
    /// fs-verity: the kernel lets nobody write.
    Verity,
    /// A memfd that is sealed against writes and shrinking.
    Sealed,
    /// A read lease, if it is available: a writer waits until the mapping is handed back.
    Lease,
    /// The user says so.
    Assumed,
}

/// `FS_IOC_GETFLAGS`, and the bit of fs-verity (`FS_VERITY_FL`).
const GET_FLAGS: u64 = 0x8008_6601;
const VERITY: libc::c_long = 0x0010_0000;

/// How we know it of an open file of which bytes up to `end` are mapped, or that we do not.
pub fn of(fd: RawFd, stat: &libc::stat, end: u64) -> Result<Assurance, Decline> {
    if options::get().assume_immutable {
        return Ok(Assurance::Assumed);
    }
    // Its last page is there as a whole.
    let size = (stat.st_size as u64).next_multiple_of(PAGE as u64);
    let has_name = stat.st_nlink > 0;
    if is_sealed(fd, end > size) {
        return Ok(Assurance::Sealed);
    }
    if has_verity(fd) {
        return Ok(Assurance::Verity);
    }
    // On other file systems the kernel does not know all writers, though they may be mounted read-only here.
    match file_system(fd) {
        Some(kind) if READ_ONLY.contains(&kind) => Ok(Assurance::ReadOnlyFilesystem),
        // A memfd has no name, and whoever made it may write without being counted as a writer.
        Some(TMPFS) if !has_name => Err(Decline::FileMayChange),
        Some(kind) if LOCAL.contains(&kind) => Ok(Assurance::Lease),
        _ => Err(Decline::FileMayChange),
    }
}

/// File systems that are never written to, by their magic numbers (`statfs(2)`): squashfs, erofs, iso9660, cramfs in both byte orders,
/// romfs. Others may be mounted anew to be written to, or are written to by another machine.
const READ_ONLY: [u64; 6] = [
    0x7371_7368,
    0xE0F5_E1E2,
    0x9660,
    0x28CD_3D45,
    0x453D_CD28,
    0x7275,
];

const TMPFS: u64 = 0x0102_1994;

/// File systems whose files are written to by this machine alone, by their magic numbers (`statfs(2)`): ext, xfs,
/// btrfs, tmpfs, f2fs, bcachefs, zfs, and overlays, whose lower layers may not be written to.
const LOCAL: [u64; 8] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    TMPFS,
    0xF2F5_2010,
    0xCA45_1A4E,
    0x2FC1_2FC1,
    0x794C_7630,
];

/// The magic number of a file's file system.
fn file_system(fd: RawFd) -> Option<u64> {
    let mut about = core::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: fills the structure; zeros are a valid one.
    unsafe {
        (libc::fstatfs(fd, about.as_mut_ptr()) == 0).then(|| about.assume_init().f_type as u64)
    }
}

/// True of a memfd that stays as it is; `past`: also where something behind its end is mapped, which comes to be there if it grows.
fn is_sealed(fd: RawFd, past: bool) -> bool {
    let grow = if past { libc::F_SEAL_GROW } else { 0 };
    let wanted = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | grow;
    // SAFETY: only asks.
    let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
    seals >= 0 && seals & wanted == wanted
}

fn has_verity(fd: RawFd) -> bool {
    let mut flags: libc::c_long = 0;
    // SAFETY: fills a word.
    let asked = unsafe { libc::ioctl(fd, GET_FLAGS as _, &raw mut flags) };
    asked == 0 && flags & VERITY != 0
}
