//! How much may be left in the kernel's page cache.
//!
//! The room is the least that one of these leaves:
//!
//! - *the machine*: free memory, less a 32nd of all memory (below about that the kernel begins to evict).
//!   Where that is less than an eighth of the available memory, since memory is full of files that were read
//!   long ago: that eighth, once. Pages that are brought in beyond free memory count against it for as long
//!   as free memory is short, so that no engine ever evicts more.
//! - *each memory cgroup* of the process, up to the root: its limit (the lower of `memory.max` and
//!   `memory.high`), less its use, less a 32nd of the limit.
//!
//! And each of them but that eighth less the rest of the budget, since that is promised.
//!
//! Asking costs some calls in the table of descriptors: so it is asked again after 16 MiB that were
//! brought in, and after a quarter of a second when a file is opened. No heap, no wait for a lock.
//!
//! A process may be moved to another cgroup, and its first one removed: which ones it has is looked at once a second, by the thread that
//! watches memory and where files are opened. A limit that cannot be read is no limit that is not there: there is no room until
//! it can be.

use crate::cgroup::{CgroupFiles, SAID, memory_cgroups_of};
use crate::table::Guarded;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use softfault_engine::PAGE_SIZE;
use softfault_engine::budget::Budget;
use softfault_engine::lock::Mutex;
use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;

/// Bytes brought in between two looks.
const STEP: u64 = 16 << 20;
/// How long an answer holds for a file that is opened.
const FRESH_MS: u64 = 250;
/// Between two looks at the cgroups that the process has.
const GROUPS_MS: u64 = 1000;
/// Bytes of what the kernel says of them: a line for each hierarchy, each with a path.
const MOST_SAID: usize = 32 << 10;
/// Memory that stays free of any limit.
const RESERVE: u64 = 32;
/// The part of the available memory that one engine may evict.
const EVICTED: u64 = 8;

#[derive(Debug)]
pub(super) struct Room {
    /// Immutable. /proc/meminfo.
    machine: Guarded,
    /// Immutable. What the kernel says of the process's cgroups.
    said: Option<Guarded>,
    /// Its memory cgroups. Handlers do not wait for it: a child of fork may find it locked for ever.
    groups: Mutex<Groups>,
    /// When they were found last. Relaxed, as the next.
    found_ms: AtomicU64,
    /// A limit could not be read since.
    is_stale: AtomicBool,
    /// Immutable. Whose memory comes first.
    budget: Arc<Budget>,
    /// Bytes that may still be brought in, as far as is known. Relaxed, as all here: any value is some
    /// moment's.
    left: AtomicI64,
    /// Bytes brought in since the last look.
    since: AtomicU64,
    /// Bytes brought in while free memory was short.
    evicted: AtomicU64,
    /// When the last look was; 0 before the first.
    looked_ms: AtomicU64,
    /// The limit as a test says it; 0: none does.
    #[cfg(test)]
    limit_of_test: AtomicU64,
}

/// The memory cgroups, from the process's own to the root.
#[derive(Debug, Default)]
struct Groups {
    /// What the kernel said of them.
    said: Vec<u8>,
    all: Box<[Group]>,
}

/// A file of the kernel's that was there cannot be read: its cgroup is gone, or another process has it.
#[derive(Debug)]
pub(super) struct Unreadable;

/// A memory cgroup: its limit, and its use.
#[derive(Debug)]
struct Group {
    limits: Vec<Guarded>,
    current: Guarded,
}

impl Room {
    /// `None` where there is no table of descriptors to ask in.
    pub(super) fn new(budget: Arc<Budget>) -> Option<Self> {
        let machine = open("/proc/meminfo".as_ref())?;
        let said = open(SAID.as_ref());
        let groups = said.as_ref().and_then(said_in).map(Groups::of);
        Some(Self {
            machine,
            said,
            groups: Mutex::new(groups.unwrap_or_default()),
            found_ms: AtomicU64::new(now_ms()),
            is_stale: AtomicBool::new(false),
            budget,
            left: AtomicI64::new(0),
            since: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            looked_ms: AtomicU64::new(0),
            #[cfg(test)]
            limit_of_test: AtomicU64::new(0),
        })
    }

    /// True if so many bytes can be left in the page cache, as it is now.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        let now = now_ms();
        let looked = self.looked_ms.load(Relaxed);
        if looked == 0 || now.saturating_sub(looked) >= FRESH_MS {
            self.look();
        }
        i64::try_from(bytes).is_ok_and(|bytes| bytes <= self.left.load(Relaxed))
    }

    /// So many bytes were brought in, or were there. True if there is room for more.
    pub(super) fn brought(&self, bytes: u64) -> bool {
        let left = self.left.fetch_sub(bytes as i64, Relaxed) - bytes as i64;
        let since = self.since.fetch_add(bytes, Relaxed) + bytes;
        if (left <= 0 || since >= STEP) && !self.look() {
            // Another looks just now: it says so to the next.
            return true;
        }
        self.left.load(Relaxed) > 0
    }

    /// The lowest limit of the cgroups, as it is now; `None` without one. Not for a handler.
    pub(super) fn limit(&self) -> Result<Option<u64>, Unreadable> {
        #[cfg(test)]
        if let limit @ 1.. = self.limit_of_test.load(Relaxed) {
            return Ok(Some(limit));
        }
        self.find_groups();
        let limits: Result<Vec<_>, _> = self.groups.lock().all.iter().map(Group::limit).collect();
        let limits = limits.inspect_err(|_| self.is_stale.store(true, Relaxed))?;
        Ok(limits.into_iter().flatten().min())
    }

    /// Looks which cgroups the process has, if that was not done of late. Not for a handler.
    pub(super) fn find_groups(&self) {
        let is_stale = self.is_stale.swap(false, Relaxed);
        let now = now_ms();
        if !is_stale && now.saturating_sub(self.found_ms.load(Relaxed)) < GROUPS_MS {
            return;
        }
        self.found_ms.store(now, Relaxed);
        // What cannot be read says nothing.
        let Some(said) = self.said.as_ref().and_then(said_in) else {
            return;
        };
        if !is_stale && self.groups.lock().said == said {
            return;
        }
        let found = Groups::of(said);
        let before = core::mem::replace(&mut *self.groups.lock(), found);
        drop(before);
    }

    /// Asks how much there is; false if another does.
    #[cold]
    #[inline(never)]
    fn look(&self) -> bool {
        #[cfg(test)]
        if self.looked_ms.load(Relaxed) == tests::STILL {
            return true;
        }
        let Some(groups) = self.groups.try_lock() else {
            return false;
        };
        let since = self.since.swap(0, Relaxed);
        let left = self.ask(since, &groups).unwrap_or(0);
        self.left.store(left, Relaxed);
        self.looked_ms.store(now_ms().max(1), Relaxed);
        true
    }

    fn ask(&self, since: u64, groups: &Groups) -> Option<i64> {
        let mut text = [0; 128];
        let text = read(&self.machine, &mut text)?;
        let field = |name| field(text, name).map(|kib| kib << 10);
        let (all, free) = (field("MemTotal:")?, field("MemFree:")?);
        let available = field("MemAvailable:").unwrap_or(free);
        let promised = (self.budget.limit()).saturating_sub(self.budget.charged());
        let promised = (promised * PAGE_SIZE as u64) as i64;
        let mut left = free as i64 - (all / RESERVE) as i64;
        match left > 0 {
            true => self.evicted.store(0, Relaxed),
            false => {
                self.evicted.fetch_add(since, Relaxed);
            }
        }
        left -= promised;
        let evictable = (available / EVICTED) as i64 - self.evicted.load(Relaxed) as i64;
        left = left.max(evictable);
        for group in &groups.all {
            match group.left() {
                Ok(Some(its)) => left = left.min(its.saturating_sub(promised)),
                Ok(None) => {}
                Err(Unreadable) => {
                    self.is_stale.store(true, Relaxed);
                    return None;
                }
            }
        }
        Some(left)
    }
}

impl Groups {
    fn of(said: Vec<u8>) -> Self {
        let files = memory_cgroups_of(&String::from_utf8_lossy(&said));
        let all = files.iter().filter_map(Group::of).collect();
        Self { said, all }
    }
}

impl Group {
    fn of(files: &CgroupFiles) -> Option<Self> {
        Some(Self {
            limits: files.limits.iter().filter_map(|path| open(path)).collect(),
            current: open(&files.current)?,
        })
    }

    /// `None` if it has none.
    fn limit(&self) -> Result<Option<u64>, Unreadable> {
        let mut least = None;
        for limit in &self.limits {
            let limit = number_in(limit)?;
            least = least.into_iter().chain(limit).min();
        }
        Ok(least)
    }

    /// `None` without a limit.
    fn left(&self) -> Result<Option<i64>, Unreadable> {
        let Some(limit) = self.limit()? else {
            return Ok(None);
        };
        let current = number_in(&self.current)?.unwrap_or(u64::MAX);
        let signed = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        Ok(Some(
            signed(limit - limit / RESERVE).saturating_sub(signed(current)),
        ))
    }
}

/// Opens a file of the kernel's where no close of the program reaches it.
pub(super) fn open(path: &Path) -> Option<Guarded> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let here = libc::AT_FDCWD as usize;
    let args = [here, path.as_ptr() as usize, flags as usize, 0, 0, 0];
    // SAFETY: the path is a string that ends in zero; the descriptor is new.
    unsafe { Guarded::open(libc::SYS_openat, args) }.ok()
}

/// The file's first bytes.
pub(super) fn read<'a>(file: &Guarded, into: &'a mut [u8]) -> Option<&'a [u8]> {
    let args = [into.as_mut_ptr() as usize, into.len(), 0, 0, 0];
    // SAFETY: writable for its length.
    let bytes = unsafe { file.call(libc::SYS_pread64, args) }.ok()?;
    into.get(..bytes)
}

/// The number that a file has; `None` if it has a word there ("max").
fn number_in(file: &Guarded) -> Result<Option<u64>, Unreadable> {
    let mut text = [0; 32];
    Ok(number(read(file, &mut text).ok_or(Unreadable)?))
}

/// What the kernel says of the cgroups.
fn said_in(file: &Guarded) -> Option<Vec<u8>> {
    let mut text = vec![0; MOST_SAID];
    let bytes = read(file, &mut text)?.len();
    text.truncate(bytes);
    Some(text)
}

/// The number behind a name, in a text of lines of both.
fn field(text: &[u8], name: &str) -> Option<u64> {
    let at = text
        .windows(name.len())
        .position(|at| at == name.as_bytes())?;
    number(&text[at + name.len()..])
}

/// The number that a text begins with, behind spaces.
fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let mut number = None;
    for digit in digits {
        let before = number.unwrap_or(0u64);
        let more = before
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
        number = Some(more);
    }
    number
}

/// A clock that costs no system call.
pub(super) fn now_ms() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of a look after which there is none.
    pub(super) const STILL: u64 = u64::MAX;

    impl Room {
        /// From now on there is so much.
        pub(in crate::store) fn set_left(&self, left: i64) {
            self.looked_ms.store(STILL, Relaxed);
            self.left.store(left, Relaxed);
        }

        /// From now on that is the limit of the cgroups.
        pub(in crate::store) fn set_limit(&self, limit: u64) {
            self.limit_of_test.store(limit, Relaxed);
        }
    }

    #[test]
    fn numbers_of_the_kernel() {
        assert_eq!(number(b"4096\n"), Some(4096));
        assert_eq!(number(b"max\n"), None);
        assert_eq!(number(b""), None);
        assert_eq!(number(b"99999999999999999999\n"), None);
        let text = b"MemTotal:       24684096 kB\nMemFree:        14000000 kB\nMemAvai";
        assert_eq!(field(text, "MemFree:"), Some(14_000_000));
        assert_eq!(field(text, "MemAvailable:"), None);
    }

    #[test]
    fn room_is_asked_and_used_up() {
        let Some(room) = Room::new(Budget::new(1)) else {
            return softfault_skip::skipped("kernel", "there is no table of descriptors");
        };
        assert!(!room.fits(u64::MAX));
        let all = 1 << 50;
        assert!(!room.fits(all), "no machine has as much");
        room.set_left(1000);
        assert!(room.fits(1000) && !room.fits(1001));
        assert!(room.brought(900) && room.fits(100) && !room.fits(101));
        assert!(!room.brought(100) && !room.fits(1));
    }
}
