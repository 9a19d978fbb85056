//! Files of the directory: how they are read, and whether their changes show.

use super::check::{Check, Tried, Whereabouts};
use super::machine;
use super::machine::MOUNT_PROC;
use super::place::{PAGE, Place, UNKNOWN_FILE_SYSTEM, contents, file_system};
use softfault::store::{FileStore, Mode, WhyBuffered};
use softfault_sim::calibrate::memory::Memory;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Direct reads (O_DIRECT) of a file in the directory: the file system's answer, the library's
/// conclusion, and one read.
pub const DIRECT_READS: Check = Check {
    name: "direct-reads",
    costs: "pages are copied through the kernel's page cache, and dropped there after each read",
    run: |place| {
        look(place).unwrap_or_else(|e| {
            Tried::missing(
                format!("could not be tried in {}: {e}", place.dir.display()),
                ELSEWHERE,
            )
        })
    },
    whereabouts: Whereabouts::Child,
};

const ELSEWHERE: &str = "keep the files on ext4, xfs, btrfs or a block device; try: --dir DIR";

fn look(place: &Place) -> io::Result<Tried> {
    let file = place.file()?;
    file.sync_all()?;
    let name = file_system(&file).unwrap_or_else(|| UNKNOWN_FILE_SYSTEM.to_owned());
    let place_name = format!("{name} in {}", place.dir.display());
    if ["tmpfs", "ramfs"].contains(&name.as_str()) {
        return Ok(Tried::slower(
            format!("{place_name}: files are in memory already"),
            ELSEWHERE,
        )
        .costing("a map holds a second copy; the kernel's mmap needs none"));
    }
    let told = alignment(&file);
    let alignment = match told {
        Some((memory, offset)) => format!("buffers aligned to {memory}, offsets to {offset} bytes"),
        None => "alignment unknown (needs Linux 6.1 and the file system's help)".to_owned(),
    };
    Ok(match FileStore::open(file.as_fd(), None)?.mode() {
        Mode::Direct => match read(&file) {
            Ok(()) => Tried::ok(format!("{place_name}: read one, {alignment}")),
            Err(e) => Tried::slower(format!("{place_name}: a read failed: {e}"), ELSEWHERE),
        },
        Mode::Buffered(WhyBuffered::Alignment(bytes)) => Tried::slower(
            format!("{place_name}: wants blocks of {bytes} bytes"),
            "make the file system with blocks of at most 4096 bytes",
        ),
        Mode::Buffered(WhyBuffered::NotReopened(errno)) => {
            let error = io::Error::from_raw_os_error(errno);
            Tried::slower(
                format!("{place_name}: not opened anew: {error}"),
                MOUNT_PROC,
            )
        }
        Mode::Buffered(_) => Tried::slower(format!("{place_name}: has no direct reads"), ELSEWHERE),
    })
}

/// Reads a page past the page cache and compares it.
fn read(file: &File) -> io::Result<()> {
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let page = Memory::map(PAGE, false)?;
    // SAFETY: the page is writable for its length.
    let read = unsafe { libc::pread(direct.as_raw_fd(), page.at(0).cast(), PAGE, 0) };
    if read < 0 {
        return Err(io::Error::last_os_error());
    }
    let right = contents()[..PAGE]
        .iter()
        .enumerate()
        .all(|(i, &byte)| page.read(i) == byte);
    match read as usize == PAGE && right {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{read} bytes, not those of the file"
        ))),
    }
}

/// The alignment of buffers and of offsets that statx(2) tells.
fn alignment(file: &File) -> Option<(u32, u32)> {
    let mut statx = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path means the descriptor; the buffer is a `statx`, of which zeros are one too.
    let statx = unsafe {
        let (path, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
        libc::statx(
            file.as_raw_fd(),
            path,
            flags,
            libc::STATX_DIOALIGN,
            statx.as_mut_ptr(),
        );
        statx.assume_init()
    };
    let told = statx.stx_mask & libc::STATX_DIOALIGN != 0;
    told.then_some((statx.stx_dio_mem_align, statx.stx_dio_offset_align))
}

/// Whether each change of a file shows in its time stamp (multigrain stamps: Linux 6.13, on ext4, xfs,
/// btrfs and tmpfs). Without them two changes within a tick of the clock look like one.
pub const TIME_STAMPS: Check = Check {
    name: "time-stamps",
    costs: "a change within 20 ms of the last may hide, so files that young are read anew when mapped again",
    run: |place| match changes(place) {
        Ok((CHANGES, name)) => Tried::ok(format!(
            "{name}: {CHANGES} of {CHANGES} changes in a row showed"
        )),
        Ok((seen, name)) => Tried::slower(
            format!("{name}: {seen} of {CHANGES} changes in a row showed"),
            format!("{}, on ext4, xfs or btrfs", machine::newer_kernel(6, 13)),
        ),
        Err(e) => Tried::slower(
            format!("could not be tried: {e}"),
            "try another directory: --dir DIR",
        ),
    },
    whereabouts: Whereabouts::Child,
};

const CHANGES: usize = 64;

/// Changes a file without pause; how many changes showed, and the file system's name.
fn changes(place: &Place) -> io::Result<(usize, String)> {
    let file = place.file()?;
    let stamp = || {
        file.metadata()
            .map(|data| (data.mtime(), data.mtime_nsec()))
    };
    let mut last = stamp()?;
    let mut seen = 0;
    for change in 0..CHANGES {
        file.write_all_at(&[change as u8], 0)?;
        let now = stamp()?;
        seen += usize::from(now != last);
        last = now;
    }
    let name = file_system(&file).unwrap_or_else(|| UNKNOWN_FILE_SYSTEM.to_owned());
    Ok((seen, name))
}
