//! A file that is written to: where pages of a shared writable map go back to.
//!
//! Whole pages go past the page cache, where the file system lets them, many runs at a time. The page that the file
//! ends in goes through it, up to the end: a direct write would make the file longer. All of it is done in the table
//! that no close of the program reaches: a number may mean another file at any time (see `descriptor`).
//!
//! Where the program's own open file is all there is, because it may not be opened anew, the program may set its flags at any time.
//! With O_APPEND pwrite(2) writes at the end, not where it is told. So such writes say that they do not append.

use super::descriptor::Descriptor;
use super::errno;
use super::identity::{self, stat};
use super::length::{Length, StoppedWrites};
use super::open::{bytes_allocated, duplicate, flags_of, open_path, path_of, why_not_direct};
use super::refusals::{Refusals, insist};
use super::reserved::Reserved;
use super::ring::{MOST_RUNS, Run};
use super::write_queues::WriteQueues;
use crate::signal::without_file_size_signal;
use crate::table;
use crate::uffd::copy_some;
use core::ffi::CStr;
use core::ops::Range;
use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{PageWrite, StoreError, WriteBack};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes that are copied at a time to be looked at. There is little room on a handler's stack.
const PIECE: usize = 128;

/// A file that is open for writing.
#[derive(Debug)]
pub(crate) struct FileWrites {
    /// Immutable. Through the page cache.
    buffered: Descriptor,
    /// Immutable. That is the program's own open file.
    lent: bool,
    /// Immutable. Past it, if that can be.
    direct: Option<Descriptor>,
    /// Immutable. A block device.
    device: bool,
    /// Kept by a write.
    length: Length,
    /// The parts of it that have their blocks; `None`: all of it, as on a device.
    reserved: Option<Reserved>,
    /// Immutable. For writes past the page cache.
    queues: &'static WriteQueues,
}

/// True if the file system says that a file has no hole; it is opened once more for that.
fn has_no_hole(path: &CStr, stat: &libc::stat) -> bool {
    // Looking moves the position of an open file. So without a table nobody looks: see `open`.
    let looks = table::refused().is_none();
    let file = looks.then(|| open_path(path, libc::O_RDONLY, (0, 0), stat).ok());
    // Of FUSE the server answers, which does not know what the page cache has.
    let file = file.flatten().filter(|file| !file.is_fuse());
    let args = [0, libc::SEEK_HOLE as usize, 0, 0, 0];
    // SAFETY: no memory involved.
    let first = file.and_then(|file| unsafe { file.call(libc::SYS_lseek, args) }.ok());
    first == usize::try_from(stat.st_size).ok()
}

impl FileWrites {
    /// Opens the file behind `user`, which [`may_be_written`](super::may_be_written), once more. At most `bytes` bytes of it
    /// will be written.
    pub(crate) fn open(user: BorrowedFd<'_>, bytes: u64) -> io::Result<Self> {
        let flags = flags_of(user).map_err(errno::of_call("fcntl"))?;
        let stat = stat(user).map_err(errno::of_call("fstat"))?;
        let device = stat.st_mode & libc::S_IFMT == libc::S_IFBLK;
        let path = path_of(user);
        let (buffered, direct, lent) = match open_path(&path, libc::O_RDWR, (0, 0), &stat) {
            Ok(buffered) => {
                let both = (libc::O_DIRECT, libc::O_DIRECT);
                let direct = open_path(&path, libc::O_RDWR, both, &stat).ok();
                (
                    buffered,
                    direct.filter(|file| why_not_direct(file).is_none()),
                    false,
                )
            }
            // Before Linux 6.9 it would write elsewhere.
            Err(no) if flags & libc::O_APPEND != 0 => return Err(errno::io(no)),
            // The program's own open file, whose flags are the program's.
            Err(_) if flags & libc::O_DIRECT == 0 => {
                let file = duplicate(user).map_err(errno::of_call("fcntl"))?;
                (file, None, true)
            }
            Err(no) => return Err(errno::io(no)),
        };
        // A file without a method for writes, as on hugetlbfs, refuses this too. Another one does nothing.
        let none = [core::ptr::null::<u8>() as usize, 0, 0, 0, 0];
        // SAFETY: no byte is read.
        unsafe { buffered.call(libc::SYS_pwrite64, none) }.map_err(errno::io)?;
        table::want_several();
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        // Its blocks may also be past its end, or have other things than its bytes.
        let dense = match bytes_allocated(&stat) >= size && !lent && has_no_hole(&path, &stat) {
            true => size,
            false => 0,
        };
        let reserved = match device {
            true => None,
            false => {
                let reserved = Reserved::new(dense, bytes);
                Some(reserved.ok_or_else(|| errno::io(libc::ENOMEM))?)
            }
        };
        let queues = WriteQueues::of_process();
        if direct.is_some() {
            queues.make();
        }
        Ok(Self {
            queues,
            buffered,
            lent,
            direct,
            device,
            length: Length::default(),
            reserved,
        })
    }

    /// The file, in the table, for the caller that maps it.
    pub(crate) fn in_table(&self) -> Option<&table::Guarded> {
        self.buffered.guarded()
    }

    /// Makes a range a hole.
    pub(crate) fn punch(&self, range: Range<u64>) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let punched = self.buffered.fallocate(mode, range.clone());
        if let Some(reserved) = &self.reserved {
            reserved.punched(range);
        }
        punched.map_err(errno::io)
    }

    /// Lets nobody write, so that the length can be changed.
    pub(crate) fn stop(&self) -> StoppedWrites<'_> {
        self.length.stop()
    }

    /// The file, which had `before` bytes, was cut.
    pub(crate) fn was_cut(&self, end: u64, before: u64) {
        if let Some(reserved) = &self.reserved {
            reserved.cut(end, before);
        }
    }

    /// True if this is the file.
    pub(crate) fn is_of(&self, file: &File) -> io::Result<bool> {
        let stat = stat(file.as_fd()).map_err(errno::of_call("fstat"))?;
        Ok(self.buffered.is_file(&stat))
    }

    fn size(&self) -> Result<u64, i32> {
        if self.device {
            return identity::device_bytes_of(&self.buffered);
        }
        Ok(u64::try_from(self.buffered.stat()?.st_size).unwrap_or(0))
    }

    /// Writes the bytes behind the known end in its page, if others have made the file `size` bytes long since. The
    /// page had zeros there: bytes that are not 0 were stored by the program, bytes that are 0 are left to the others.
    ///
    /// # Safety
    /// The page is readable, or was until the program threw it away.
    // Not inlined: its variables would be on the handler's stack in all other writes.
    #[cold]
    #[inline(never)]
    unsafe fn write_past(&self, last: &PageWrite, end: u64, size: u64) -> Result<(), i32> {
        let mut piece = [0_u8; PIECE];
        let now = (size - last.offset).min(PAGE_SIZE as u64) as usize;
        for start in ((end - last.offset) as usize..now).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(now - start)];
            // SAFETY: within the page.
            unsafe { look_at(last.page.wrapping_add(start), piece) }?;
            let mut at = 0;
            for run in piece.chunk_by(|byte, next| (*byte == 0) == (*next == 0)) {
                if run[0] != 0 {
                    self.write_buffered(Run {
                        offset: last.offset + (start + at) as u64,
                        bytes: run.as_ptr(),
                        len: run.len(),
                    })?;
                }
                at += run.len();
            }
        }
        Ok(())
    }

    /// Writes a run through the page cache.
    fn write_buffered(&self, run: Run) -> Result<(), i32> {
        match self.lent {
            false => write_one(&self.buffered, run),
            true => write_all(run, |run| write_some_lent(&self.buffered, run)),
        }
    }

    /// Writes whole pages past the page cache.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn write_direct(&self, file: &Descriptor, pages: &mut [PageWrite]) {
        for pages in pages.chunks_mut(MOST_RUNS) {
            // SAFETY: the caller's promise.
            unsafe {
                match file.guarded().zip(self.queues.free()) {
                    Some((guarded, mut queue)) => {
                        queue.write(guarded, pages);
                        drop(queue);
                        write_failed(file, pages);
                    }
                    None => each_run(pages, |run| write_one(file, run)),
                }
            }
        }
    }
}

/// Copies bytes of a page of the program, by the kernel: this thread has the page locked, and nobody would serve its own fault.
///
/// # Safety
/// They are readable, or were until the program threw the page away.
unsafe fn look_at(from: *const u8, piece: &mut [u8]) -> Result<(), i32> {
    // SAFETY: fills the piece.
    match unsafe { copy_some(from, piece.as_mut_ptr(), piece.len()) } {
        Ok(copied) if copied == piece.len() => Ok(()),
        Ok(_) | Err(libc::EFAULT) => Err(libc::EFAULT),
        // A filter refuses the call. They were there a moment ago.
        Err(_) => {
            for (at, byte) in piece.iter_mut().enumerate() {
                // SAFETY: as above; others may write to it.
                *byte = unsafe { from.add(at).read_volatile() };
            }
            Ok(())
        }
    }
}

/// True if `next` comes after `page`, in the file and in memory.
pub(super) fn follows(page: &PageWrite, next: &PageWrite) -> bool {
    next.offset == page.offset + PAGE_SIZE as u64
        && next.page.addr() == page.page.addr() + PAGE_SIZE
}

/// Pages in a row.
pub(super) fn run_of(pages: &[PageWrite]) -> Run {
    Run {
        offset: pages[0].offset,
        bytes: pages[0].page,
        len: pages.len() * PAGE_SIZE,
    }
}

/// Has each run written, and if that fails each of its pages.
///
/// # Safety
/// `write` may be called with each.
unsafe fn each_run(pages: &mut [PageWrite], write: impl Fn(Run) -> Result<(), i32>) {
    for pages in pages.chunk_by_mut(follows) {
        if write(run_of(pages)).is_ok() {
            pages.iter_mut().for_each(|page| page.result = Ok(()));
            continue;
        }
        for page in pages {
            page.result = write(run_of(core::slice::from_ref(page))).map_err(errno::store);
        }
    }
}

/// Writes the failed pages once more, page by page: the other pages of their run may have been the reason.
///
/// # Safety
/// The pages are readable.
unsafe fn write_failed(file: &Descriptor, pages: &mut [PageWrite]) {
    for page in pages.iter_mut().filter(|page| page.result.is_err()) {
        let run = run_of(core::slice::from_ref(page));
        page.result = write_one(file, run).map_err(errno::store);
    }
}

/// Writes a run in the calling thread.
fn write_one(file: &Descriptor, run: Run) -> Result<(), i32> {
    write_all(run, |run| write_some(file, run))
}

/// Writes the first bytes of a run, or all; answers how many.
fn write_some(file: &Descriptor, run: &Run) -> Result<usize, i32> {
    let args = [run.bytes.addr(), run.len, run.offset as usize, 0, 0];
    // SAFETY: readable, or the kernel says EFAULT.
    unsafe { file.call(libc::SYS_pwrite64, args) }
}

/// The same by an open file that the program may set to append.
fn write_some_lent(file: &Descriptor, run: &Run) -> Result<usize, i32> {
    let part = libc::iovec {
        iov_base: run.bytes.cast_mut().cast(),
        iov_len: run.len,
    };
    let flags = libc::RWF_NOAPPEND as usize;
    let args = [(&raw const part).addr(), 1, run.offset as usize, 0, flags];
    // SAFETY: as in `write_some`.
    match unsafe { file.call(libc::SYS_pwritev2, args) } {
        // Linux before 6.9 does not know the flag.
        Err(libc::EOPNOTSUPP | libc::ENOSYS) => write_some_unless_appends(file, run),
        written => written,
    }
}

/// The same where writes cannot say that they do not append: refused if the file appends. A program that sets the flag between the look and
/// the write is not noticed.
fn write_some_unless_appends(file: &Descriptor, run: &Run) -> Result<usize, i32> {
    // SAFETY: no memory involved.
    let flags = unsafe { file.call(libc::SYS_fcntl, [libc::F_GETFL as usize, 0, 0, 0, 0]) }?;
    match flags as i32 & libc::O_APPEND {
        0 => write_some(file, run),
        _ => Err(libc::EPERM),
    }
}

/// Writes a run by some calls.
fn write_all(mut run: Run, write: impl Fn(&Run) -> Result<usize, i32>) -> Result<(), i32> {
    let mut refusals = Refusals::default();
    while run.len > 0 {
        match without_file_size_signal(|| write(&run)) {
            // Nothing, and no word why.
            Ok(0) => return Err(libc::EIO),
            Ok(written) => {
                run.offset += written as u64;
                run.bytes = run.bytes.wrapping_add(written);
                run.len -= written;
                refusals.progress();
            }
            Err(errno) => refusals.again(errno)?,
        }
    }
    Ok(())
}

impl WriteBack for FileWrites {
    unsafe fn write(&self, pages: &mut [PageWrite], end: u64) {
        let _length = self.length.keep();
        let size = match self.size() {
            Ok(size) => size,
            Err(errno) => {
                let failed = Err(errno::store(errno));
                return pages.iter_mut().for_each(|page| page.result = failed);
            }
        };
        // Another process may have cut pages off that the engine has: what is not written is told.
        for page in pages.iter_mut() {
            page.result = match page.offset {
                cut_off if cut_off >= size && cut_off < end => Err(StoreError::Short),
                _ => Ok(()),
            };
        }
        let end = size.min(end);
        let is_whole = |page: &PageWrite| page.offset + PAGE_SIZE as u64 <= end;
        let (whole, rest) = pages.split_at_mut(pages.partition_point(is_whole));
        match &self.direct {
            // SAFETY: the caller's promise.
            Some(direct) => unsafe { self.write_direct(direct, whole) },
            // SAFETY: as above.
            None => unsafe { each_run(whole, |run| self.write_buffered(run)) },
        }
        if let Some(last) = rest.first_mut().filter(|page| page.offset < end) {
            let run = Run {
                len: (end - last.offset) as usize,
                ..run_of(core::slice::from_ref(last))
            };
            let written = self.write_buffered(run);
            // SAFETY: as above.
            let written = written.and_then(|()| unsafe { self.write_past(last, end, size) });
            last.result = written.map_err(errno::store);
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        // SAFETY: no memory involved.
        let synced = insist(|| unsafe { self.buffered.call(libc::SYS_fdatasync, [0; 5]) });
        synced.map(drop).map_err(errno::store)
    }

    fn is_reserved(&self, offset: u64) -> bool {
        let has = |reserved: &Reserved| reserved.has(offset);
        self.reserved.as_ref().is_none_or(has)
    }

    fn reserve(&self, offset: u64) -> Result<(), StoreError> {
        let Some(reserved) = &self.reserved else {
            return Ok(());
        };
        // A file that becomes shorter meanwhile would keep blocks behind its end.
        let _length = self.length.keep();
        let size = self.size().map_err(errno::store)?;
        reserved.ask(offset, size, |part| self.allocate(part))
    }
}

impl FileWrites {
    /// Asks for the blocks of a part.
    fn allocate(&self, part: Range<u64>) -> Result<(), StoreError> {
        match self.buffered.fallocate(libc::FALLOC_FL_KEEP_SIZE, part) {
            // Where the file system cannot, or a filter of system calls denies it, write-back finds out.
            Ok(()) | Err(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM) => Ok(()),
            Err(errno) => Err(errno::store(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    const PAGES: usize = 3;

    fn set_flags(file: &File, flags: i32) {
        // SAFETY: no memory involved.
        let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) };
        assert_eq!(set, 0);
    }

    /// A file of some pages, set to append after it was opened, and the program's own open file of it.
    fn appends() -> (File, Descriptor) {
        // SAFETY: a new descriptor, which is the file's.
        let mut file = unsafe {
            let fd = libc::memfd_create(c"appends".as_ptr(), libc::MFD_CLOEXEC);
            <File as std::os::fd::FromRawFd>::from_raw_fd(fd)
        };
        file.write_all(&[1; PAGES * PAGE_SIZE]).expect("written");
        let lent = duplicate(file.as_fd()).expect("a descriptor");
        set_flags(&file, libc::O_APPEND);
        (file, lent)
    }

    /// The first byte of each page.
    fn content(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; PAGES * PAGE_SIZE];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, 0).expect("read");
        bytes.into_iter().step_by(PAGE_SIZE).collect()
    }

    fn writes_to(lent: Descriptor) -> FileWrites {
        FileWrites {
            buffered: lent,
            lent: true,
            direct: None,
            device: false,
            length: Length::default(),
            reserved: None,
            queues: WriteQueues::of_process(),
        }
    }

    /// The bytes behind the known end are written as far as they are not 0.
    #[test]
    fn a_page_whose_end_is_behind_the_known_one_is_written_as_it_is() {
        let (file, lent) = appends();
        set_flags(&file, 0);
        let mut bytes = [0; PAGE_SIZE];
        let stored = |at: usize| (250..270).contains(&at) || at == 500 || at == PAGE_SIZE - 1;
        (0..PAGE_SIZE).for_each(|at| bytes[at] = 5 * u8::from(stored(at)));
        let last = PageWrite {
            offset: 0,
            page: bytes.as_ptr(),
            result: Ok(()),
        };
        // SAFETY: a readable page.
        let written = unsafe { writes_to(lent).write_past(&last, 260, 2 * PAGE_SIZE as u64) };
        assert_eq!(written, Ok(()));
        let mut content = vec![0; PAGE_SIZE];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut content, 0).expect("read");
        for (at, byte) in content.into_iter().enumerate() {
            let is_stored = at >= 260 && stored(at);
            assert_eq!(byte, if is_stored { 5 } else { 1 }, "byte {at}");
        }
    }

    /// The program throws it away while it is written: the thread that writes has it locked, and must not touch it.
    #[test]
    fn a_page_that_is_gone_is_not_touched_for_its_end() {
        let (file, lent) = appends();
        let gone = sync::pages::map(PAGE_SIZE).expect("memory");
        // SAFETY: nobody else knows of it.
        let protected = unsafe {
            let start = gone.as_ptr();
            sync::system_call!(libc::SYS_mprotect, start, PAGE_SIZE, libc::PROT_NONE)
        };
        assert_eq!(protected, 0);
        let last = PageWrite {
            offset: 0,
            page: gone.as_ptr(),
            result: Ok(()),
        };
        // SAFETY: a page that is gone.
        let written = unsafe { writes_to(lent).write_past(&last, 100, 200) };
        assert_eq!(written, Err(libc::EFAULT));
        assert_eq!(content(&file), [1, 1, 1]);
    }

    #[test]
    fn a_lent_file_that_appends_is_written_in_its_place() {
        let (file, lent) = appends();
        let writes = writes_to(lent);
        let bytes = [2; PAGE_SIZE];
        let mut pages = [PageWrite {
            offset: PAGE_SIZE as u64,
            page: bytes.as_ptr(),
            result: Ok(()),
        }];
        // SAFETY: a readable page.
        unsafe { writes.write(&mut pages, (PAGES * PAGE_SIZE) as u64) };
        let length = file.metadata().expect("a length").len();
        assert_eq!(length, (PAGES * PAGE_SIZE) as u64, "nothing was appended");
        match pages[0].result {
            Ok(()) => assert_eq!(content(&file), [1, 2, 1]),
            // Linux before 6.9.
            Err(refused) => assert_eq!(refused, errno::store(libc::EPERM)),
        }
    }

    #[test]
    fn without_the_kernels_help_it_is_refused() {
        let (file, lent) = appends();
        let bytes = [2; PAGE_SIZE];
        let run = Run {
            offset: PAGE_SIZE as u64,
            bytes: bytes.as_ptr(),
            len: PAGE_SIZE,
        };
        assert_eq!(write_some_unless_appends(&lent, &run), Err(libc::EPERM));
        assert_eq!(
            file.metadata().expect("a length").len(),
            (PAGES * PAGE_SIZE) as u64
        );
        set_flags(&file, 0);
        assert_eq!(write_some_unless_appends(&lent, &run), Ok(PAGE_SIZE));
        assert_eq!(content(&file), [1, 2, 1]);
    }
}
