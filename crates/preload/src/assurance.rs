//! How we know that no process writes to a file while it is mapped: pages that were read once stay right.

use crate::count::Decline;
use crate::options;
use std::os::fd::RawFd;

/// Why a file stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assurance {
    /// Its file system is mounted read-only, by its superblock: no other mount of it can be written to.
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

/// How we know it of an open file, or that we do not.
pub fn of(fd: RawFd, stat: &libc::stat) -> Result<Assurance, Decline> {
    if options::get().assume_immutable {
        return Ok(Assurance::Assumed);
    }
    if is_sealed(fd) {
        return Ok(Assurance::Sealed);
    }
    if has_verity(fd) {
        return Ok(Assurance::Verity);
    }
    if is_on_read_only(fd, stat.st_dev) {
        return Ok(Assurance::ReadOnlyFilesystem);
    }
    // On other file systems the kernel does not know all writers.
    match has_local_leases(fd) {
        true => Ok(Assurance::Lease),
        false => Err(Decline::NoAssurance),
    }
}

/// File systems whose files are written to by this machine alone, by their magic numbers (`statfs(2)`): ext, xfs,
/// btrfs, tmpfs, f2fs, bcachefs, zfs, and overlays, whose lower layers may not be written to.
const LOCAL: [u64; 8] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0xF2F5_2010,
    0xCA45_1A4E,
    0x2FC1_2FC1,
    0x794C_7630,
];

fn has_local_leases(fd: RawFd) -> bool {
    let mut about = core::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: fills the structure; zeros are a valid one.
    let kind = unsafe {
        if libc::fstatfs(fd, about.as_mut_ptr()) != 0 {
            return false;
        }
        about.assume_init().f_type as u64
    };
    LOCAL.contains(&kind)
}

fn is_sealed(fd: RawFd) -> bool {
    let wanted = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK;
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

/// True if the superblock is read-only. A mount that is read-only says nothing: the same file system may be mounted
/// elsewhere to be written to.
fn is_on_read_only(fd: RawFd, device: libc::dev_t) -> bool {
    let mut about = core::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: fills the structure; zeros are a valid one.
    let flags = unsafe {
        if libc::fstatvfs(fd, about.as_mut_ptr()) != 0 {
            return false;
        }
        about.assume_init().f_flag
    };
    if flags & libc::ST_RDONLY == 0 {
        return false;
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let device = format!("{}:{}", libc::major(device), libc::minor(device));
    mounts.lines().any(|line| is_read_only(line, &device))
}

/// True if a line of mountinfo is of a superblock of this device that is read-only.
fn is_read_only(line: &str, device: &str) -> bool {
    let Some((mount, superblock)) = line.split_once(" - ") else {
        return false;
    };
    let options = superblock.split(' ').nth(2).unwrap_or_default();
    mount.split(' ').nth(2) == Some(device) && options.split(',').any(|option| option == "ro")
}
