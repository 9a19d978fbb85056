//! Which version of a file this is.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::descriptor::Descriptor;
use super::errno;

/// A file and its version, as far as the file system tells: two equal
/// identities that are [`certain`](Self::certain) mean equal bytes.
///
/// Not seen: writes through a shared mapping that began before the identity
/// was taken and were not yet written back, and bytes changed underneath the
/// file system (a block device, the lower layer of an overlay).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Device of the file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of the bytes, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Last change of bytes or attributes, nanoseconds since 1970.
    pub ctime_ns: i64,
}

/// Two changes closer together than this may carry one time stamp: the file
/// systems' clock ticks at the kernel's HZ, at the slowest 100 a second.
const TICK_NS: i64 = 20_000_000;
/// The same where stamps are whole seconds, as of ext3 and of ext4 with small inodes, or every other second, as of vfat.
const WHOLE_NS: i64 = 2 * SECOND_NS + TICK_NS;
const SECOND_NS: i64 = 1_000_000_000;

impl FileIdentity {
    /// The identity of an open file.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let stat = stat(fd).map_err(errno::io)?;
        let mut identity = Self::from_stat(&stat);
        if stat.st_mode & libc::S_IFMT == libc::S_IFBLK {
            identity.size = device_bytes(fd).map_err(errno::io)?;
        }
        Ok(identity)
    }

    /// The same of a file or a block device, which have pages to map. Others have none:
    /// ENODEV, as from mmap(2).
    pub(crate) fn of_mappable(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let stat = stat(fd).map_err(errno::io)?;
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => Ok(Self::from_stat(&stat)),
            libc::S_IFBLK => Self::of(fd),
            _ => Err(errno::io(libc::ENODEV)),
        }
    }

    /// The identity of a file of ours.
    pub(crate) fn of_file(file: &Descriptor) -> io::Result<Self> {
        let stat = file.stat().map_err(errno::io)?;
        Ok(Self::from_stat(&stat))
    }

    pub(super) fn from_stat(stat: &libc::stat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// True if a later change must show in the identity. `now_ns` is the wall
    /// clock (nanoseconds since 1970) read before the identity was taken: one
    /// whose stamps are younger than a tick of the file system's clock, or in
    /// the future, may hide a change within the same tick. (git's index calls
    /// such entries racy.) Stamps that are both whole seconds may be all that the
    /// file system keeps.
    pub fn certain(&self, now_ns: i64) -> bool {
        let newest = self.mtime_ns.max(self.ctime_ns);
        let is_whole = |stamp_ns: i64| stamp_ns % SECOND_NS == 0;
        let tick_ns = match is_whole(self.mtime_ns) && is_whole(self.ctime_ns) {
            true => WHOLE_NS,
            false => TICK_NS,
        };
        now_ns.saturating_sub(newest) >= tick_ns
    }
}

/// A file, as fstat(2) tells it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Inode {
    dev: u64,
    ino: u64,
}

impl Inode {
    pub(super) fn of(stat: &libc::stat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
        }
    }
}

/// The alignment of buffers and offsets for direct I/O, in bytes. Zeros: there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alignment {
    pub(crate) memory: u32,
    pub(crate) offset: u32,
}

/// The system's data of a file that is being opened, by one call: also of direct I/O, if the
/// file system tells.
pub(super) struct Statx(MaybeUninit<libc::statx>);

impl Statx {
    /// To be filled by statx(2).
    pub(super) fn new() -> Self {
        Self(MaybeUninit::zeroed())
    }

    /// All arguments of statx(2) behind the descriptor.
    pub(super) fn args(&mut self) -> [usize; 5] {
        let mask = libc::STATX_BASIC_STATS | libc::STATX_DIOALIGN;
        [
            c"".as_ptr() as usize,
            libc::AT_EMPTY_PATH as usize,
            mask as usize,
            self.0.as_mut_ptr() as usize,
            0,
        ]
    }

    /// The result that the kernel has put there.
    pub(super) fn read(&self) -> Result<(libc::stat, Option<Alignment>), i32> {
        // SAFETY: all zeros are a valid `statx`, and so are the kernel's values.
        read(unsafe { self.0.assume_init_ref() })
    }
}

fn read(statx: &libc::statx) -> Result<(libc::stat, Option<Alignment>), i32> {
    if statx.stx_mask & libc::STATX_BASIC_STATS != libc::STATX_BASIC_STATS {
        return Err(libc::EOPNOTSUPP);
    }
    // SAFETY: numbers, of which zeros are valid ones.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = libc::makedev(statx.stx_dev_major, statx.stx_dev_minor);
    stat.st_ino = statx.stx_ino;
    stat.st_mode = statx.stx_mode.into();
    stat.st_nlink = statx.stx_nlink.into();
    stat.st_size = statx.stx_size as i64;
    stat.st_blocks = statx.stx_blocks as i64;
    (stat.st_mtime, stat.st_mtime_nsec) = (statx.stx_mtime.tv_sec, statx.stx_mtime.tv_nsec.into());
    (stat.st_ctime, stat.st_ctime_nsec) = (statx.stx_ctime.tv_sec, statx.stx_ctime.tv_nsec.into());
    let told = statx.stx_mask & libc::STATX_DIOALIGN != 0;
    let alignment = told.then_some(Alignment {
        memory: statx.stx_dio_mem_align,
        offset: statx.stx_dio_offset_align,
    });
    Ok((stat, alignment))
}

/// The stat of an open file.
pub(super) fn stat(fd: BorrowedFd<'_>) -> Result<libc::stat, i32> {
    stat_of(fd.as_raw_fd())
}

/// The stat of the file that this number means now.
pub(super) fn stat_of(fd: RawFd) -> Result<libc::stat, i32> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: the buffer is a `stat` for the kernel to fill.
    errno::check(unsafe { libc::fstat(fd, stat.as_mut_ptr()) })?;
    // SAFETY: fstat succeeded, so it is filled.
    Ok(unsafe { stat.assume_init() })
}

/// Bytes of a block device, whose size is not in its `stat`.
fn device_bytes(fd: BorrowedFd<'_>) -> Result<u64, i32> {
    let mut bytes = 0u64;
    let request = BLKGETSIZE64 as libc::Ioctl;
    // SAFETY: the request stores 64 bits.
    errno::check(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut bytes) })?;
    Ok(bytes)
}

/// <linux/fs.h>: _IOR(0x12, 114, size_t).
const BLKGETSIZE64: usize = 0x8008_1272;

/// The same.
pub(super) fn device_bytes_of(device: &Descriptor) -> Result<u64, i32> {
    let mut bytes = 0u64;
    let args = [BLKGETSIZE64, &raw mut bytes as usize, 0, 0, 0];
    // SAFETY: the request stores 64 bits.
    unsafe { device.call(libc::SYS_ioctl, args) }?;
    Ok(bytes)
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds
        .saturating_mul(SECOND_NS)
        .saturating_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: FileIdentity = FileIdentity {
        dev: 1,
        ino: 2,
        size: 3,
        mtime_ns: 1_000_000_000,
        ctime_ns: 2_000_000_001,
    };

    #[test]
    fn certain_only_a_tick_after_the_newest_stamp() {
        assert!(OLD.certain(OLD.ctime_ns + TICK_NS));
        assert!(!OLD.certain(OLD.ctime_ns + TICK_NS - 1));
        assert!(!OLD.certain(OLD.ctime_ns));
        let touched = FileIdentity {
            mtime_ns: 3_000_000_000,
            ..OLD
        };
        assert!(!touched.certain(3_000_000_000 + TICK_NS - 1));
        assert!(touched.certain(3_000_000_000 + TICK_NS));
    }

    #[test]
    fn whole_seconds_are_certain_only_once_they_are_over() {
        let whole = FileIdentity {
            ctime_ns: 10_000_000_000,
            ..OLD
        };
        // Written, mapped, and written again within the second that the stamps show.
        assert!(!whole.certain(10_300_000_000));
        assert!(!whole.certain(12_000_000_000));
        assert!(whole.certain(12_000_000_000 + TICK_NS));
        let of_mtime = FileIdentity {
            mtime_ns: 9_000_000_001,
            ..whole
        };
        assert!(of_mtime.certain(10_300_000_000));
    }

    #[test]
    fn stamps_in_the_future_are_never_certain() {
        assert!(!OLD.certain(0));
        assert!(
            !FileIdentity {
                mtime_ns: i64::MAX,
                ..OLD
            }
            .certain(i64::MAX)
        );
        assert!(!OLD.certain(i64::MIN));
    }
}
