//! The page that the processes of a tree share.
//!
//! It is a file in memory, by a name that the environment has: descriptors are closed on the way to a child, names are
//! not. It appears whole, by link(2). The last process takes it away, or the next tree of the same user.

use super::level::level;
use super::member::Member;
use super::robust::{Locked, Robust};
use crate::call;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use core::time::Duration;
use softfault::clock::now_ns;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Of this arrangement of the page: a library of another version is in another tree.
const MAGIC: u64 = 0x7366_7472_6565_0001;
/// Processes that may have an engine at a time.
const MOST: usize = 1024;
/// A process that was stopped while it had the page locked holds the others up for so long, each time.
const WAIT: Duration = Duration::from_millis(200);
/// The beginning of a page's name; its user, the first process, and a number follow.
const PREFIX: &str = "softfault-run-";

/// The shared state. Zeros, except for the fields that [`Page::make`] sets.
#[repr(C)]
pub struct Page {
    /// Immutable.
    magic: AtomicU64,
    /// For changes of more than one word.
    lock: Robust,
    /// Bytes that all may have. Under the lock; relaxed, as all here: the lock orders it.
    memory: AtomicU64,
    /// The same at first. Immutable.
    first_memory: AtomicU64,
    /// 1: it was said, and follows nobody. Immutable.
    is_said: AtomicU32,
    /// 1: its file is gone, or about to go. Under the lock.
    is_closed: AtomicU32,
    /// The most that all had at a time, at most. Under the lock.
    peak: AtomicU64,
    /// The most members at a time. Under the lock.
    processes: AtomicU64,
    /// Members from this one on were never used. Under the lock.
    high: AtomicU32,
    members: [Member; MOST],
}

/// This process's mapping of it, which its children have too.
static MAPPED: AtomicPtr<Page> = AtomicPtr::new(null_mut());

/// The page, locked.
pub struct LockedPage {
    pub page: &'static Page,
    _locked: Locked<'static>,
}

impl Page {
    /// The page of a name, made if there is none, for so many bytes.
    pub fn open(path: &CStr, memory: usize, is_said: bool) -> io::Result<&'static Self> {
        // Relaxed: mapped by this thread with the table locked, or by its parent.
        // SAFETY: null, or mapped for ever.
        let mapped = unsafe { MAPPED.load(Relaxed).as_ref() };
        if let Some(page) = mapped.filter(|page| page.is_closed.load(Relaxed) == 0) {
            return Ok(page);
        }
        let page = match Self::map_existing(path) {
            Some(page) => page,
            None => match Self::make(path, memory, is_said) {
                Ok(page) => page,
                // Another may have been faster.
                Err(why) => Self::map_existing(path).ok_or(why)?,
            },
        };
        MAPPED.store(core::ptr::from_ref(page).cast_mut(), Relaxed);
        Ok(page)
    }

    /// The page of a name, if it is there and ours.
    fn map_existing(path: &CStr) -> Option<&'static Self> {
        let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: a path that ends in zero.
        let fd = unsafe { libc::open(path.as_ptr(), flags) };
        if fd < 0 {
            return None;
        }
        let about = stat(|about| {
            // SAFETY: fills the structure.
            unsafe { libc::fstat(fd, about) }
        });
        // SAFETY: only asks.
        let user = unsafe { libc::geteuid() };
        let is_ours = about.is_some_and(|about| {
            about.st_uid == user && about.st_size as usize == size_of::<Self>()
        });
        let page = is_ours.then(|| Self::map(fd)).flatten();
        // SAFETY: opened above.
        unsafe { libc::close(fd) };
        let page = page.filter(|page| page.magic.load(Relaxed) == MAGIC)?;
        page.remove_if_closed(path, about?.st_ino);
        Some(page)
    }

    /// The process that gave it up may have ended before the file was gone.
    fn remove_if_closed(&'static self, path: &CStr, inode: libc::ino_t) {
        let Some(locked) = self.lock() else { return };
        let is_there = || {
            let there = stat(|about| {
                // SAFETY: a path that ends in zero; fills the structure.
                unsafe { libc::lstat(path.as_ptr(), about) }
            });
            there.is_some_and(|there| there.st_ino == inode)
        };
        // Nobody else removes it while it is locked, and nobody makes another while it is there.
        if locked.page.is_closed.load(Relaxed) == 1 && is_there() {
            // SAFETY: a path that ends in zero.
            unsafe { libc::unlink(path.as_ptr()) };
        }
    }

    fn make(path: &CStr, memory: usize, is_said: bool) -> io::Result<&'static Self> {
        let whole = Path::new(OsStr::from_bytes(path.to_bytes()));
        let directory = whole.parent().ok_or(io::ErrorKind::NotFound)?;
        sweep(directory);
        let mut options = File::options();
        options.read(true).write(true).mode(0o600);
        let file = options.custom_flags(libc::O_TMPFILE).open(directory)?;
        allocate(&file)?;
        let page = Self::map(file.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: nobody else knows it.
        unsafe { page.lock.make() };
        page.memory.store(memory as u64, Relaxed);
        page.first_memory.store(memory as u64, Relaxed);
        page.is_said.store(is_said.into(), Relaxed);
        page.magic.store(MAGIC, Relaxed);
        let own = CString::new(format!("/proc/thread-self/fd/{}", file.as_raw_fd()))?;
        let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
        // SAFETY: paths that end in zero.
        match unsafe { libc::linkat(here, own.as_ptr(), here, path.as_ptr(), follow) } {
            0 => Ok(page),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn map(fd: libc::c_int) -> Option<&'static Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let bytes = size_of::<Self>();
        // SAFETY: new memory.
        let mapped = unsafe { call::mmap(null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0) };
        // SAFETY: words that may have any value, mapped for ever; words that are not ours are not used.
        (mapped != libc::MAP_FAILED).then(|| unsafe { &*mapped.cast() })
    }

    /// Locks it; `None` if the holder of the lock does not go on.
    pub fn lock(&'static self) -> Option<LockedPage> {
        let locked = self.lock.lock(WAIT)?;
        let locked = LockedPage {
            page: self,
            _locked: locked,
        };
        // In this order: the memory of processes that have ended since counts.
        locked.note_peak();
        locked.members().for_each(|(_, member)| member.reap());
        Some(locked)
    }

    /// A member, by its number.
    pub fn member(&self, number: usize) -> &Member {
        &self.members[number]
    }

    /// True if it is for as much memory as the system gives.
    pub fn follows(&self) -> bool {
        self.is_said.load(Relaxed) == 0
    }

    /// Bytes that all may have, the most that they had, and the most members, each at a time.
    pub fn numbers(&self) -> (u64, u64, u64) {
        let [memory, peak, processes] =
            [&self.memory, &self.peak, &self.processes].map(|number| number.load(Relaxed));
        (memory, peak, processes)
    }

    /// Removes the file, if nobody but `own` is a member, and the first process ends or has ended.
    pub fn give_up(&'static self, path: &CStr, own: Option<usize>) {
        let root = root_of(path.to_bytes());
        if !root.is_some_and(|root| root == std::process::id() || is_gone(root)) {
            return;
        }
        let Some(locked) = self.lock() else { return };
        let others = locked.members().filter(|&(number, _)| Some(number) != own);
        if others.count() == 0 {
            locked.page.is_closed.store(1, Relaxed);
            // SAFETY: a path that ends in zero.
            unsafe { libc::unlink(path.as_ptr()) };
        }
    }
}

/// At the end of a process that has no engine: of the first, which removes the file where it is the last.
pub fn ends_without(path: &CStr) {
    if root_of(path.to_bytes()) == Some(std::process::id())
        && let Some(page) = Page::map_existing(path)
    {
        page.give_up(path, None);
    }
}

impl LockedPage {
    /// The members, with their numbers: those that lived when the page was locked.
    pub fn members(&self) -> impl Iterator<Item = (usize, &'static Member)> {
        let high = self.page.high.load(Relaxed) as usize;
        let members = self.page.members[..high].iter().enumerate();
        members.filter(|(_, member)| member.is_taken())
    }

    /// A member that nobody is, from now on of the thread that calls; `None` if the page is full, or given up.
    pub fn take(&self) -> Option<(usize, Locked<'static>)> {
        if self.page.is_closed.load(Relaxed) == 1 {
            return None;
        }
        let mut members = self.page.members.iter().enumerate();
        let (number, member) = members.find(|(_, member)| !member.is_taken())?;
        let high = self.page.high.load(Relaxed).max(number as u32 + 1);
        let locked = member.begin()?;
        self.page.high.store(high, Relaxed);
        let processes = self.members().count() as u64;
        let most = self.page.processes.load(Relaxed).max(processes);
        self.page.processes.store(most, Relaxed);
        Some((number, locked))
    }

    /// Bytes that all may have.
    pub fn memory(&self) -> u64 {
        self.page.memory.load(Relaxed)
    }

    /// Lowers that to the system's present limit, or raises it again.
    pub fn follow(&self, now: u64) {
        let first = self.page.first_memory.load(Relaxed);
        self.page.memory.store(now.min(first), Relaxed);
    }

    /// Bytes that are nobody's share.
    pub fn free(&self) -> u64 {
        let shares = self.members().map(|(_, member)| member.share.load(Relaxed));
        self.memory().saturating_sub(shares.sum())
    }

    /// The level at which wants are cut.
    pub fn level(&self) -> u64 {
        let now = now_ns();
        let wants = self.members().map(|(_, member)| member.wants(now));
        level(self.memory(), &wants.collect::<Vec<_>>())
    }

    /// Before a share gets less, or a member ends: notes the peak of all so far.
    fn note_peak(&self) {
        let had = self.members().map(|(_, member)| {
            let peak = member.peak.load(Relaxed);
            peak.min(member.share.load(Relaxed))
        });
        let peak = self.page.peak.load(Relaxed).max(had.sum());
        self.page.peak.store(peak, Relaxed);
    }
}

/// Gives a page's file its length, and the memory for it: a store to a hole would be a SIGBUS on a full file system.
fn allocate(file: &File) -> io::Result<()> {
    let bytes = size_of::<Page>() as libc::off_t;
    let allocate = || loop {
        // SAFETY: of a file that is there.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
            0 => return Ok(()),
            libc::EINTR => {}
            why => return Err(why),
        }
    };
    softfault::without_file_size_signal(allocate).map_err(io::Error::from_raw_os_error)
}

/// Removes pages of this user's trees whose processes were all killed.
fn sweep(directory: &Path) {
    let found = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in found {
        let name = entry.file_name();
        let is_left = root_of(name.as_bytes()).is_some_and(is_gone);
        let path = CString::new(entry.path().into_os_string().into_encoded_bytes());
        if let (true, Ok(path)) = (is_left, path)
            && let Some(page) = Page::map_existing(&path)
        {
            page.give_up(&path, None);
            // SAFETY: mapped above, and nobody refers to it any more.
            unsafe {
                softfault::kernel_calls::munmap(
                    core::ptr::from_ref(page).cast_mut().cast(),
                    size_of::<Page>(),
                )
            };
        }
    }
}

/// The first process of the tree whose page has this name.
fn root_of(path: &[u8]) -> Option<u32> {
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    let name = core::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?;
    name.split('-').nth(1)?.parse().ok()
}

fn is_gone(process: u32) -> bool {
    // SAFETY: only asks.
    let asked = unsafe { libc::kill(process as libc::pid_t, 0) };
    asked != 0 && call::errno() == libc::ESRCH
}

fn stat(ask: impl FnOnce(*mut libc::stat) -> libc::c_int) -> Option<libc::stat> {
    let mut about = MaybeUninit::zeroed();
    // SAFETY: zeros are a valid one, and the call fills it.
    (ask(about.as_mut_ptr()) == 0).then(|| unsafe { about.assume_init() })
}
