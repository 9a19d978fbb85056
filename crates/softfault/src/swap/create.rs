//! A file for swap: without a name, so that nothing is left however the process
//! ends.
//!
//! Where the file system cannot make a file without a name, it gets one and loses
//! it at once. A process that dies between leaves it: the next process to start in the
//! directory removes files of our naming that are not locked. The lock goes
//! with the process, so its number being used again means nothing.

use crate::error;
use crate::signal::without_file_size_signal;
use crate::store::{Alignment, Descriptor, Mode, check, why_not_direct};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use softfault_engine::PAGE_SIZE;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names are `softfault-<process>-<number>.swap`.
const PREFIX: &[u8] = b"softfault-";
const SUFFIX: &[u8] = b".swap";

/// A file of ours alone.
pub(super) struct Created {
    pub(super) file: Descriptor,
    pub(super) mode: Mode,
    /// The alignment for reads and writes.
    pub(super) align: usize,
}

/// Makes a file of `bytes` in `dir`, which holds nothing yet.
pub(super) fn create(dir: &Path, bytes: u64) -> io::Result<Created> {
    let made = match nameless(dir) {
        Err(errno) if has_no_nameless(errno) => {
            remove_left(dir);
            named(dir)
        }
        made => made,
    };
    sized(
        made.map_err(|errno| match errno {
            libc::EPERM | libc::ENOSYS => error::call("open", errno),
            errno => io::Error::from_raw_os_error(errno),
        })?,
        bytes,
    )
}

/// True if the error may only mean that a file must have a name here. (A kernel
/// or file system that does not know O_TMPFILE sees a directory being opened.)
fn has_no_nameless(errno: i32) -> bool {
    [libc::EOPNOTSUPP, libc::EISDIR, libc::EINVAL, libc::ENOENT].contains(&errno)
}

fn sized(fd: OwnedFd, bytes: u64) -> io::Result<Created> {
    // Nobody but us has locks on it.
    let file = Descriptor::own(fd, false).map_err(io::Error::from_raw_os_error)?;
    // SAFETY: no memory involved.
    let truncate = || unsafe { file.call(libc::SYS_ftruncate, [bytes as usize, 0, 0, 0, 0]) };
    let truncated = without_file_size_signal(truncate);
    truncated.map_err(|errno| error::call("ftruncate", errno))?;
    // Asked for now, not when it was opened: a file system that refuses must not
    // look as one that cannot do without names.
    let set = |flags: i32| {
        let args = [libc::F_SETFL as usize, flags as usize, 0, 0, 0];
        // SAFETY: no memory involved.
        unsafe { file.call(libc::SYS_fcntl, args) }
    };
    let why = match set(libc::O_DIRECT) {
        Ok(_) => why_not_direct(&file),
        Err(errno) => Some(crate::store::WhyBuffered::Refused(errno)),
    };
    if why.is_some() {
        let _ = set(0);
        let advice = [0, 0, libc::POSIX_FADV_RANDOM as usize, 0, 0];
        // SAFETY: no memory involved.
        let _ = unsafe { file.call(libc::SYS_fadvise64, advice) };
    }
    // Where nothing is told, and in the page cache: whole pages.
    let align = match file.alignment() {
        Some(Alignment { memory, offset }) if why.is_none() => memory.max(offset).max(512) as usize,
        _ => PAGE_SIZE,
    };
    Ok(Created {
        align,
        mode: why.map_or(Mode::Direct, Mode::Buffered),
        file,
    })
}

const FLAGS: i32 = libc::O_RDWR | libc::O_CLOEXEC;

fn open(path: &Path, flags: i32) -> Result<OwnedFd, i32> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
    // SAFETY: the path is a string that ends in zero.
    let fd = check(unsafe { libc::open(path.as_ptr(), flags, 0o600) })?;
    // SAFETY: the descriptor is new, so it is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn nameless(dir: &Path) -> Result<OwnedFd, i32> {
    // O_EXCL: nobody can give it a name.
    open(dir, FLAGS | libc::O_TMPFILE | libc::O_EXCL)
}

fn named(dir: &Path) -> Result<OwnedFd, i32> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = dir.join(format!("softfault-{process}-{number}.swap"));
        let flags = FLAGS | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        match open(&path, flags) {
            Ok(fd) => {
                // A process that could take it just before will remove the name too.
                lock(&fd);
                // A name that cannot be removed stays until the next start.
                let _ = std::fs::remove_file(&path);
                return Ok(fd);
            }
            Err(libc::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Takes the file's lock, if nobody has it.
fn lock(fd: &OwnedFd) -> bool {
    // SAFETY: no memory involved.
    unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Removes files of our naming that belong to nobody.
fn remove_left(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        if !is_ours(&entry.file_name()) || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path();
        // Not a pipe's opening to wait for, should it be one by now.
        let flags = FLAGS | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        if let Ok(fd) = open(&path, flags)
            && lock(&fd)
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn is_ours(name: &OsStr) -> bool {
    let middle = (name.as_bytes().strip_prefix(PREFIX)).and_then(|name| name.strip_suffix(SUFFIX));
    middle.is_some_and(|middle| {
        let mut numbers = middle.split(|&byte| byte == b'-');
        numbers.clone().count() == 2
            && numbers.all(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::PathBuf;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("softfault-{name}-{}", std::process::id()));
            std::fs::create_dir(&dir).unwrap();
            Self(dir)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_file_that_had_a_name_loses_it_at_once() {
        let dir = Dir::new("named");
        let made = [named(&dir.0).unwrap(), named(&dir.0).unwrap()];
        assert!(dir.names().is_empty());
        for fd in made {
            let made = sized(fd, 1 << 20).unwrap();
            assert_eq!(made.file.stat().unwrap().st_size, 1 << 20);
        }
    }

    /// A process that has `path` locked, until it is killed.
    fn holder(path: &Path) -> libc::pid_t {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut ready = [0; 2];
        // SAFETY: a pipe, and a child that makes system calls only.
        unsafe {
            assert_eq!(libc::pipe(ready.as_mut_ptr()), 0);
            let child = libc::fork();
            if child == 0 {
                let fd = libc::open(path.as_ptr(), libc::O_RDWR);
                let answer = libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) as u8;
                libc::write(ready[1], (&raw const answer).cast(), 1);
                loop {
                    libc::pause();
                }
            }
            let mut answer = 1u8;
            assert_eq!(libc::read(ready[0], (&raw mut answer).cast(), 1), 1);
            assert_eq!(answer, 0, "it has the lock");
            ready.into_iter().for_each(|fd| _ = libc::close(fd));
            child
        }
    }

    #[test]
    fn files_of_dead_processes_are_removed_and_no_others() {
        let dir = Dir::new("left");
        let held = "softfault-1-1.swap";
        let others = [
            "softfault-1-.swap",
            "softfault-a-1.swap",
            "softfault-1-1.swap.old",
            "swap",
        ];
        let left = "softfault-99999999-0.swap";
        for name in others.iter().chain([&held, &left]) {
            File::create(dir.0.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(dir.0.join("swap"), dir.0.join("softfault-2-2.swap")).unwrap();
        let child = holder(&dir.0.join(held));
        remove_left(&dir.0);
        let mut stay: Vec<_> = others.to_vec();
        stay.extend([held, "softfault-2-2.swap"]);
        stay.sort();
        assert_eq!(dir.names(), stay);
        // SAFETY: our own child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, core::ptr::null_mut(), 0);
        }
        remove_left(&dir.0);
        stay.retain(|&name| name != held);
        assert_eq!(dir.names(), stay);
    }
}
