//! How a number is known to mean our own open file.
//!
//! fstat(2) after a read names the file, and that is not enough: a program that does not know
//! our number may have had another file there while it was read, and by now its own
//! descriptor of ours. So a file that we open ourselves carries a mark, which no other open file of
//! ours has, and another has by chance only (one of 2^41; of 2^31 where files end before, of
//! 2^12 on a device that small): its position (lseek(2)), which no read of ours uses. An open file with
//! the mark is ours, and was all the time, for the program has no other descriptor of it that it
//! could have put back. Asking for a position costs half of an fstat(2).
//!
//! An open file that the program shares with us keeps its position, and has no mark.

use super::descriptor::Descriptor;
use super::identity::{self, Inode};
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::RawFd;

/// The property that a number is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// The position of an open file that is ours alone. Nobody moves it.
    Position(i64),
    /// It has none: any descriptor of this file is taken for ours.
    Inode(Inode),
}

/// Where marks end: the largest files of most file systems, then of the others, then the
/// smallest of the devices, whose ends no position is past.
const ENDS: [u64; 3] = [1 << 41, 1 << 31, 1 << 12];
/// From one mark to the next: odd, so that all below a power of two come by.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A mark that no other open file of ours has.
pub(super) struct Wanted(u64);

impl Wanted {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Where this library lies, too: another copy of it in the process has other marks.
        let from = (&raw const NEXT).addr() as u64 >> 3;
        Self(from.wrapping_add(NEXT.fetch_add(STEP, Ordering::Relaxed)))
    }

    /// The arguments of lseek(2) behind the descriptor that put it where most files take it.
    pub(super) fn first_args(&self) -> [usize; 5] {
        self.args(ENDS[0])
    }

    /// The mark, if that has put it.
    pub(super) fn is_first(&self, answer: Result<usize, i32>) -> Option<Mark> {
        self.is_put(ENDS[0], answer)
    }

    fn args(&self, end: u64) -> [usize; 5] {
        [
            self.position(end) as usize,
            libc::SEEK_SET as usize,
            0,
            0,
            0,
        ]
    }

    fn is_put(&self, end: u64, answer: Result<usize, i32>) -> Option<Mark> {
        let position = self.position(end);
        (answer == Ok(position as usize)).then_some(Mark::Position(position as i64))
    }

    fn position(&self, end: u64) -> u64 {
        // Zero is where every open file begins.
        (self.0 % end).max(1)
    }
}

impl Mark {
    /// Marks an open file, which must be ours alone.
    pub(super) fn put(file: &Descriptor, inode: Inode) -> Self {
        let wanted = Wanted::new();
        for end in ENDS {
            // SAFETY: no memory involved.
            let answer = unsafe { file.call(libc::SYS_lseek, wanted.args(end)) };
            if let Some(mark) = wanted.is_put(end, answer) {
                return mark;
            }
        }
        Self::Inode(inode)
    }

    /// True if this number of the calling thread's table means that open file now; without
    /// a position: that file.
    pub(super) fn is(self, fd: RawFd) -> bool {
        match self {
            Self::Position(position) => {
                // SAFETY: no memory involved, and nothing moves.
                let at = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
                at == position
            }
            Self::Inode(inode) => identity::stat_of(fd).is_ok_and(|stat| Inode::of(&stat) == inode),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FileStore, extent, open::Mode, open::Wanted as Opening, open::open};
    use super::*;
    use softfault_engine::store::{Extent, Store};
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::{AsFd, AsRawFd, FromRawFd};

    fn file(text: &[u8]) -> File {
        // SAFETY: the name is a string that ends in zero; the descriptor is new.
        let mut file = unsafe {
            let fd = libc::memfd_create(c"marked".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            File::from_raw_fd(fd)
        };
        file.write_all(text).expect("written");
        file
    }

    fn opened(file: &File) -> Descriptor {
        open(file.as_fd(), Opening::Buffered).expect("opened").file
    }

    /// A program that does not know our number has another file there while we read, and its
    /// own descriptor of ours before we look. Failed before: the bytes of the other were
    /// believed.
    #[test]
    fn the_same_file_is_not_the_same_open_file() {
        let (user, other) = (file(b"ours"), file(b"another's"));
        let ours = opened(&user);
        let number = ours.number().expect("a number");
        assert!(ours.is_still(number));
        // SAFETY: numbers, as any program may replace them.
        let put = |file: &File| unsafe { libc::dup2(file.as_raw_fd(), number.fd()) };
        assert_eq!(put(&other), number.fd());
        assert!(!ours.is_still(number));
        assert_eq!(put(&user), number.fd());
        assert!(!ours.is_still(number), "the program's own descriptor");
        let second = opened(&user);
        let by = second.number().expect("a number");
        // SAFETY: as above.
        assert_eq!(unsafe { libc::dup2(by.fd(), number.fd()) }, number.fd());
        assert!(second.is_still(by));
        assert!(!ours.is_still(number), "that of another map of ours");
        // SAFETY: the value that was just put there.
        unsafe { libc::close(number.fd()) };
    }

    #[test]
    fn holes_are_looked_for_elsewhere() {
        let user = file(b"ours");
        user.set_len(1 << 20).expect("longer");
        let store = FileStore::open(user.as_fd(), None).expect("opened");
        let hole = store.extent(512 << 10).expect("an extent");
        assert!(matches!(hole, Extent::Hole(_)));
        let opened = open(user.as_fd(), Opening::Buffered).expect("opened");
        let holes = opened.holes.expect("it has holes");
        let number = opened.file.number().expect("a number");
        extent::seek(&holes, 0, || Ok(1 << 20)).expect("an extent");
        assert!(opened.file.is_still(number));
    }

    #[test]
    fn the_programs_file_is_read_in_the_table() {
        let user = file(b"the program's");
        let shared = Descriptor::adopt(user.as_fd()).expect("a table");
        assert_eq!(shared.number(), None);
        let mut page = vec![0; 4096];
        // SAFETY: writable for its length.
        let read = unsafe { shared.read(0, page.as_mut_ptr(), page.len()) };
        assert_eq!((read, &page[..13]), (Ok(13), &b"the program's"[..]));
        // SAFETY: only asks.
        let position = unsafe { libc::lseek(user.as_raw_fd(), 0, libc::SEEK_CUR) };
        assert_eq!(position, 13, "the program's own position");
    }

    /// A program that maps thousands of small files waits for little else.
    #[test]
    fn opening_a_file_is_one_request() {
        // On a disk, whose file systems tell the alignment of direct reads.
        let program = std::env::current_exe().expect("a path");
        let path = program.with_extension(format!("{}", std::process::id()));
        std::fs::write(&path, [1; 1 << 16]).expect("written");
        let user = File::open(&path).expect("opened");
        std::fs::remove_file(&path).expect("removed");
        let direct = || open(user.as_fd(), Opening::Direct).expect("opened");
        drop(direct());
        let before = crate::table::requests();
        let ours = direct();
        let asked = crate::table::requests() - before;
        let is_there = u32::from(crate::table::is_there());
        match (ours.mode, ours.file.alignment()) {
            (Mode::Direct, Some(_)) if ours.holes.is_none() => assert_eq!(asked, is_there),
            other => {
                softfault_skip::skipped("direct", format_args!("calls are not counted: {other:?}"))
            }
        }
        assert!(matches!(ours.file.mark(), Mark::Position(_)));
        drop(ours);
        let closed = crate::table::requests() - before - asked;
        assert_eq!(closed, is_there, "it had no number");
    }

    #[test]
    fn no_two_have_the_same() {
        let user = file(b"one");
        let files: Vec<_> = (0..100).map(|_| opened(&user)).collect();
        let mut marks: Vec<_> = files.iter().map(|file| file.mark()).collect();
        assert!(marks.iter().all(|mark| matches!(mark, Mark::Position(_))));
        marks.sort_by_key(|mark| format!("{mark:?}"));
        marks.dedup();
        assert_eq!(marks.len(), files.len());
    }
}
