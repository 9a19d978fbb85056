//! Every run starts with its files out of the page cache: pages cached earlier would be charged to
//! somebody else's memory cgroup and would cost this run no reading.

use super::files::LabFile;
use crate::size;
use std::io;
use std::os::fd::AsRawFd;

/// The call's number, the same on every architecture we run on; the libc crate lacks it for some.
const SYS_CACHESTAT: libc::c_long = 451;

/// The structure that `cachestat` fills in (linux/mman.h).
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    nr_cache: u64,
    nr_dirty: u64,
    nr_writeback: u64,
    nr_evicted: u64,
    nr_recently_evicted: u64,
}

/// Drops `files` from the page cache, and the whole system's caches if `system`; a note for the row
/// where one of the two was not possible.
pub fn drop_caches(files: &[LabFile], system: bool) -> Option<String> {
    if files.is_empty() {
        return None;
    }
    for file in files {
        // SAFETY: posix_fadvise on a descriptor that the file owns, with no pointer.
        unsafe { libc::posix_fadvise(file.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    let system_dropped = match system {
        true => std::fs::write("/proc/sys/vm/drop_caches", "3"),
        false => Ok(()),
    };
    let cached: io::Result<u64> = files.iter().map(cached_bytes).sum();
    note(cached, system_dropped)
}

/// The note for what stayed in the page cache, if that is known, and for whether the system's caches were dropped.
fn note(cached: io::Result<u64>, system_dropped: io::Result<()>) -> Option<String> {
    match (cached, system_dropped) {
        (Ok(0), Ok(())) => None,
        (Ok(0), Err(e)) => Some(format!(
            "caches: only the files' own dropped (drop_caches: {e})"
        )),
        (Ok(left), _) => Some(format!("caches: {} stayed in memory", size::show(left))),
        (Err(e), _) => Some(format!(
            "caches: whether any of the files stayed in memory is not known (cachestat: {e})"
        )),
    }
}

/// Bytes of the file in the page cache; an error on kernels before 6.5 and for files of others.
fn cached_bytes(file: &LabFile) -> io::Result<u64> {
    let range = [0u64, 0];
    let mut stat = CacheStat::default();
    // SAFETY: the range (offset, length) and the result are live and laid out as the call wants them.
    let rc = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.file.as_raw_fd(),
            range.as_ptr(),
            &raw mut stat,
            0,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    Ok(stat.nr_cache * page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Failed before: where the kernel does not say what it has, files counted as cold.
    #[test]
    fn what_is_not_known_is_said() {
        assert_eq!(note(Ok(0), Ok(())), None);
        let said = |cached, dropped| note(cached, dropped).unwrap();
        assert!(said(Ok(0), Err(io::ErrorKind::PermissionDenied.into())).contains("drop_caches"));
        assert!(said(Ok(8192), Ok(())).contains("8.00 KiB stayed"));
        let refused = Err(io::Error::from_raw_os_error(libc::ENOSYS));
        assert!(said(refused, Ok(())).contains("not known"));
    }
}
