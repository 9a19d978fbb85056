//! How a file is read at the moment, and when that changes.
//!
//! ```text
//!            fits in the room                room is used up
//!   opened ────────────────────► Keep ───────────────────────────┐
//!     │                            ▲                             ▼
//!     │  does not fit              └───── it fits by now ───── Take ◄───┐
//!     └────────────────────────────────────────────────────────▲│       │ after a while,
//!                                          few were there ──────┘│       │ to see
//!                                                                ▼       │
//!                                                              Past ─────┘
//! ```
//!
//! A file has one descriptor for all ways: whether it reads past the page cache is a flag of the open
//! file (`O_DIRECT`), which is ours alone. Reads by several threads while it changes are right by either
//! way. The calls that tell whether a page is in the page cache (cachestat(2), mincore(2)) are for the
//! file's owner only, so it is seen by reading: *Take* reads with `RWF_DONTCACHE`, which takes the pages that are
//! there, and drops again those that it has brought in itself.

use super::descriptor::Descriptor;
use super::open::{Mode, OpenedFile, bytes_allocated};
use super::reads::{ReadPolicy, Reads};
use super::room::Room;
use super::stream::{AGAIN, LONG};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::Arc;

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ReadPath {
    /// Past the page cache.
    Past,
    /// Through it, and the pages read stay there.
    Keep,
    /// Pages that it has are taken from there; others are dropped again after the read.
    Take,
    /// Through it; it is dropped behind each read.
    Drop,
}

/// `RWF_DONTCACHE` of preadv2(2), since Linux 6.14.
const DONTCACHE: i32 = 0x80;

impl ReadPath {
    /// RWF_ flags of preadv2(2).
    pub(super) fn flags(self) -> i32 {
        match self {
            Self::Take => DONTCACHE,
            Self::Past | Self::Keep | Self::Drop => 0,
        }
    }

    /// True if the page cache is a place to find bytes in: a read that must not wait says whether they
    /// are there, and lets the kernel begin to read them if not.
    pub(super) fn is_cached(self) -> bool {
        matches!(self, Self::Keep | Self::Take)
    }

    /// True if the page cache is to be dropped behind each read.
    pub(crate) fn drops_behind(self) -> bool {
        self == Self::Drop
    }

    fn of(number: u8) -> Self {
        [Self::Past, Self::Keep, Self::Take, Self::Drop][usize::from(number)]
    }
}

/// Reads, or bytes, by which Take sees whether the page cache has the file.
const LOOK_READS: u64 = 64;
const LOOK_BYTES: u64 = 4 << 20;
/// One of so many bytes has to be there for Take to go on.
const WORTH: u64 = 8;
/// Bytes read past the page cache before it is looked at again: each time twice as many.
const AGAIN_BYTES: u64 = 256 << 20;
const AGAIN_MOST: u64 = 16 << 30;
/// Of so many bytes of a file one is read through the page cache between two looks at it, at first and in the end.
pub(super) const FIRST_FAR: u64 = 16;
const LAST_FAR: u64 = 4;

/// How one file is read.
#[derive(Debug)]
pub(super) struct FileReadPath {
    /// A [`ReadPath`]. Release and Acquire: the flag of the open file was changed before. Late is no harm.
    how: AtomicU8,
    /// Immutable. Where reads are counted, and whether there is room.
    policy: Option<Arc<ReadPolicy>>,
    /// Immutable. The ways that it may change to; `None`: it stays.
    auto: Option<AutoReadState>,
    /// Relaxed, as the next three: they are only counts.
    reads: AtomicU64,
    bytes: AtomicU64,
    /// Of which were there.
    there: AtomicU64,
}

/// Of a file whose way may change.
#[derive(Debug)]
pub(super) struct AutoReadState {
    /// Immutable. Bytes that the file takes in the page cache.
    size: u64,
    /// Immutable. Where it goes if it must not stay in the page cache: Past, or Drop.
    past: ReadPath,
    /// Somebody is changing it.
    switching: AtomicBool,
    /// Reads ahead through the page cache that are not over. The kernel has begun them there: read past it, they
    /// would be read twice.
    ahead: AtomicU32,
    /// It goes past the page cache as soon as there are none.
    drains: AtomicBool,
    /// Bytes after which it looks at the page cache again.
    again: AtomicU64,
    /// Bytes read through the page cache since it was looked at.
    through: AtomicU64,
    /// Of so many bytes of the file one is read between two looks: 16 at first, then 8, then 4.
    far: AtomicU64,
    /// Reasons to let the kernel serve it, not looked at yet: [`CacheProgress`] as bits.
    reached: AtomicU8,
    /// How far it has been read in order, past the page cache, if that was not looked at yet. Or 0.
    scanned: AtomicU64,
    /// The last scan went on to the end of what the kernel was to serve of it: the next is believed sooner.
    is_scanned: AtomicBool,
}

/// How far a file has been read through the page cache, as [`AutoReadState`] has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheProgress {
    /// So much of it that it is to be looked at: it may be there.
    Far = 1,
    /// In order, for a while; and it fits.
    InOrder = 2,
}

impl AutoReadState {
    pub(super) fn new(size: u64, past: ReadPath) -> Self {
        Self {
            size,
            past,
            switching: AtomicBool::new(false),
            ahead: AtomicU32::new(0),
            drains: AtomicBool::new(false),
            again: AtomicU64::new(AGAIN_BYTES),
            through: AtomicU64::new(0),
            far: AtomicU64::new(FIRST_FAR),
            reached: AtomicU8::new(0),
            scanned: AtomicU64::new(0),
            is_scanned: AtomicBool::new(false),
        }
    }
}

impl AutoReadState {
    /// Counts bytes that were read through the page cache, and notifies where they are many again.
    fn count_cached_read(&self, bytes: u64, policy: &ReadPolicy) {
        let through = self.through.fetch_add(bytes, Relaxed) + bytes;
        let far = self.far.load(Relaxed);
        if through >= self.size / far {
            self.through.store(0, Relaxed);
            // A look takes time by the pages that are there.
            self.far.store((far / 2).max(LAST_FAR), Relaxed);
            self.notify_progress(CacheProgress::Far, policy);
        }
    }

    /// Apart, for the handler's stack is small.
    #[cold]
    #[inline(never)]
    fn notify_progress(&self, reached: CacheProgress, policy: &ReadPolicy) {
        let bit = reached as u8;
        if self.reached.fetch_or(bit, Relaxed) & bit == 0 {
            policy.bell.ring();
        }
    }
}

impl FileReadPath {
    /// How a file is read that was opened by this policy.
    pub(super) fn first(policy: &Arc<ReadPolicy>, opened: &OpenedFile) -> Self {
        let past = match opened.mode {
            Mode::Direct => ReadPath::Past,
            Mode::Buffered(_) => ReadPath::Drop,
        };
        let counted = Some(policy.clone());
        let room = match policy.reads() {
            Reads::Direct => return Self::new(past, counted, None),
            // The program's own open file is direct, and stays so.
            Reads::Cached if past == ReadPath::Past => return Self::new(past, counted, None),
            Reads::Cached => return Self::new(ReadPath::Keep, counted, None),
            Reads::Auto => policy.room(),
        };
        room.into_iter().for_each(Room::find_groups);
        // Which pages of a device are in the page cache is not known; the program's own open file is direct,
        // and stays so.
        if opened.device || past == ReadPath::Past && !opened.ours {
            return Self::new(past, counted, None);
        }
        let stat = opened.file.opened();
        let size = bytes_allocated(stat).min(u64::try_from(stat.st_size).unwrap_or(0));
        let how = match room {
            Some(room) if room.fits(size) => ReadPath::Keep,
            _ if opened.file.can_take() => ReadPath::Take,
            _ => past,
        };
        let auto = Some(AutoReadState::new(size, past));
        Self::new(how, counted, auto)
    }

    /// Of a file that is read so, and nobody's to count.
    pub(super) fn always(how: ReadPath) -> Self {
        Self::new(how, None, None)
    }

    pub(super) fn new(
        how: ReadPath,
        policy: Option<Arc<ReadPolicy>>,
        auto: Option<AutoReadState>,
    ) -> Self {
        Self {
            how: AtomicU8::new(how as u8),
            policy,
            auto,
            reads: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            there: AtomicU64::new(0),
        }
    }

    pub(super) fn how(&self) -> ReadPath {
        ReadPath::of(self.how.load(Acquire))
    }

    /// Counts a read, and says how to go on if that is otherwise.
    fn after(&self, how: ReadPath, bytes: usize, was_there: bool) -> Option<ReadPath> {
        let policy = self.policy.as_ref()?;
        policy.count(how.is_cached(), bytes);
        if !(was_there && how.is_cached()) {
            policy.count_device_bytes(bytes);
        }
        let (auto, room) = (self.auto.as_ref()?, policy.room()?);
        let added = bytes as u64;
        if how.is_cached() {
            auto.count_cached_read(added, policy);
        }
        match how {
            ReadPath::Keep => (!was_there && !room.brought(added)).then_some(ReadPath::Take),
            ReadPath::Take => {
                let reads = self.reads.fetch_add(1, Relaxed) + 1;
                let bytes = self.bytes.fetch_add(added, Relaxed) + added;
                let there = if was_there { added } else { 0 };
                let there = self.there.fetch_add(there, Relaxed) + there;
                if reads < LOOK_READS && bytes < LOOK_BYTES {
                    return None;
                }
                self.begin();
                if room.fits(auto.size) {
                    auto.again.store(AGAIN_BYTES, Relaxed);
                    return Some(ReadPath::Keep);
                }
                (there * WORTH < bytes).then_some(auto.past)
            }
            ReadPath::Past | ReadPath::Drop => {
                let all = self.bytes.fetch_add(added, Relaxed) + added;
                let again = auto.again.load(Relaxed);
                if all < again {
                    return None;
                }
                auto.again.store((again * 2).min(AGAIN_MOST), Relaxed);
                Some(ReadPath::Take)
            }
        }
    }

    /// It is read in order.
    pub(super) fn in_order(&self) {
        if let (Some(auto), Some(policy)) = (&self.auto, &self.policy) {
            auto.notify_progress(CacheProgress::InOrder, policy);
        }
    }

    /// The bytes of a scan, past the page cache, after which it is noted each time. `None`: nobody wants to know.
    pub(super) fn scans_noted_each(&self) -> Option<u64> {
        let (auto, policy) = (self.auto.as_ref()?, self.policy.as_ref()?);
        let is_scanned = policy
            .kernel_may_serve()
            .then(|| auto.is_scanned.load(Relaxed));
        is_scanned.map(|is_scanned| if is_scanned { AGAIN } else { LONG })
    }

    /// Whether the last scan of it went on to the end of what the kernel was to serve.
    pub(super) fn was_scanned(&self, to_the_end: bool) {
        if let Some(auto) = &self.auto {
            auto.is_scanned.store(to_the_end, Relaxed);
        }
    }

    /// It is read in order, and does not fit: this far by now.
    #[cold]
    #[inline(never)]
    pub(super) fn scanned_to(&self, end: u64) {
        if let (Some(auto), Some(policy)) = (&self.auto, &self.policy) {
            auto.scanned.store(end, Relaxed);
            policy.bell.ring();
        }
    }

    /// How far it was read in order, if it was for a while since the last time.
    pub(super) fn take_scanned(&self) -> Option<u64> {
        let end = self.auto.as_ref()?.scanned.swap(0, Relaxed);
        (end != 0).then_some(end)
    }

    /// The state that it has reached since the last time: the greater one.
    pub(super) fn take_reached(&self) -> Option<CacheProgress> {
        let reached = self.auto.as_ref()?.reached.swap(0, Relaxed);
        match reached & CacheProgress::InOrder as u8 != 0 && self.how() == ReadPath::Keep {
            true => Some(CacheProgress::InOrder),
            false => (reached != 0).then_some(CacheProgress::Far),
        }
    }

    /// Counts anew.
    fn begin(&self) {
        for count in [&self.reads, &self.bytes, &self.there] {
            count.store(0, Relaxed);
        }
    }
}

impl Descriptor {
    /// How it is read now.
    pub(super) fn how(&self) -> ReadPath {
        self.way.how()
    }

    /// Bytes were read in this way; `was_there`: the page cache had them.
    pub(super) fn was_read(&self, how: ReadPath, bytes: usize, was_there: bool) {
        if let Some(next) = self.way.after(how, bytes, was_there) {
            self.switch_to(next);
        }
    }

    /// True if pages read may stay in the page cache because there is room for them.
    pub(super) fn fits(&self) -> bool {
        self.way.auto.is_some()
    }

    /// True if there is room in the page cache for so many bytes more.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let room = self.way.policy.as_ref().and_then(|policy| policy.room());
        room.is_some_and(|room| room.fits(bytes))
    }

    /// The kernel was told to bring so many bytes into the page cache.
    pub(super) fn was_brought(&self, bytes: usize) {
        let (Some(auto), Some(policy)) = (&self.way.auto, &self.way.policy) else {
            return;
        };
        policy.count_device_bytes(bytes);
        auto.count_cached_read(bytes as u64, policy);
        if policy
            .room()
            .is_some_and(|room| !room.brought(bytes as u64))
        {
            self.switch_to(ReadPath::Take);
        }
    }

    /// So many reads ahead are about to begin in this way. False: none may, for a moment.
    pub(super) fn begin_ahead(&self, how: ReadPath, reads: usize) -> bool {
        let Some(auto) = &self.way.auto else {
            return true;
        };
        if how.is_cached() {
            if auto.drains.load(Relaxed) {
                // Where none was left that could end it.
                self.switch_if_drained();
                return false;
            }
            auto.ahead.fetch_add(reads as u32, Relaxed);
        }
        true
    }

    /// So many are over, or were not begun.
    pub(super) fn end_ahead(&self, how: ReadPath, reads: usize) {
        let Some(auto) = &self.way.auto else { return };
        if how.is_cached() && reads > 0 {
            auto.ahead.fetch_sub(reads as u32, Relaxed);
            self.switch_if_drained();
        }
    }

    fn switch_if_drained(&self) {
        if let Some(auto) = &self.way.auto
            && auto.drains.load(Relaxed)
            && auto.ahead.load(Relaxed) == 0
        {
            self.switch_to(auto.past);
        }
    }

    #[cold]
    #[inline(never)]
    fn switch_to(&self, to: ReadPath) {
        let Some(auto) = &self.way.auto else { return };
        // Acquire pairs with the Release below.
        if auto.switching.swap(true, Acquire) {
            return;
        }
        let drains = to == ReadPath::Past && auto.ahead.load(Relaxed) > 0;
        auto.drains.store(drains, Relaxed);
        if drains {
            auto.switching.store(false, Release);
            return;
        }
        let to = match to == ReadPath::Take && !self.can_take() {
            true => auto.past,
            false => to,
        };
        let now = self.way.how();
        let flag = |how| {
            if how == ReadPath::Past {
                libc::O_DIRECT
            } else {
                0
            }
        };
        let is_set = flag(to) == flag(now) || self.set_flags(flag(to)).is_ok();
        self.way.begin();
        if is_set {
            self.way.how.store(to as u8, Release);
        }
        auto.switching.store(false, Release);
    }

    /// Sets the flags of the open file, which is ours alone.
    pub(super) fn set_flags(&self, flags: i32) -> Result<(), i32> {
        let args = [libc::F_SETFL as usize, flags as usize, 0, 0, 0];
        // SAFETY: no memory involved.
        unsafe { self.call(libc::SYS_fcntl, args) }.map(|_| ())
    }

    /// True if the kernel and the file system know `RWF_DONTCACHE`. Asks by a read behind any file's end.
    pub(super) fn can_take(&self) -> bool {
        const BEHIND: usize = 1 << 60;
        let mut byte = 0u8;
        let part = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let flags = DONTCACHE as usize;
        let args = [(&raw const part).addr(), 1, BEHIND, 0, flags];
        // SAFETY: one part, of one byte.
        let answer = unsafe { self.call(libc::SYS_preadv2, args) };
        answer.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Reads;
    use crate::store::open::{Wanted, open};
    use softfault_engine::budget::Budget;
    use std::fs::File;
    use std::os::fd::AsFd;

    /// A file that is read as `Auto` has it, and the room that it is told of.
    struct AutoReadFile {
        file: Descriptor,
        policy: Arc<ReadPolicy>,
    }

    const SIZE: u64 = 64 << 20;

    impl AutoReadFile {
        /// `None` where there is no table, or no direct reads.
        fn new(how: ReadPath) -> Option<Self> {
            let program = std::env::current_exe().expect("a path");
            let file = File::open(program).expect("opened");
            let policy = Arc::new(ReadPolicy::new(Reads::Auto, &Budget::new(1), false, false));
            let Some(room) = policy.room() else {
                softfault_skip::skipped("kernel", "there is no table of descriptors");
                return None;
            };
            room.set_left(0);
            let mut opened = open(file.as_fd(), Wanted::Either).expect("opened");
            if opened.mode != Mode::Direct || !opened.file.can_take() {
                softfault_skip::skipped("direct", "no direct reads, or no RWF_DONTCACHE");
                return None;
            }
            let auto = Some(AutoReadState::new(SIZE, ReadPath::Past));
            opened.file.way = FileReadPath::new(how, Some(policy.clone()), auto);
            let file = opened.file;
            Some(Self { file, policy })
        }

        fn set_left(&self, left: i64) {
            self.policy.room().expect("made so").set_left(left);
        }

        /// How it is read after so many reads of a MiB.
        fn after(&self, reads: u32, was_there: bool) -> ReadPath {
            let how = self.file.how();
            (0..reads).for_each(|_| self.file.was_read(how, 1 << 20, was_there));
            self.file.how()
        }

        /// True if the open file reads past the page cache.
        fn is_direct(&self) -> bool {
            // SAFETY: no memory involved.
            let flags = unsafe {
                self.file
                    .call(libc::SYS_fcntl, [libc::F_GETFL as usize, 0, 0, 0, 0])
            };
            flags.expect("flags") & libc::O_DIRECT as usize != 0
        }
    }

    #[test]
    fn a_file_stays_in_the_page_cache_while_there_is_room() {
        let Some(auto) = AutoReadFile::new(ReadPath::Keep) else {
            return;
        };
        auto.set_left(40 << 20);
        assert_eq!(auto.after(39, false), ReadPath::Keep);
        // Pages that were there take no room.
        assert_eq!(auto.after(100, true), ReadPath::Keep);
        assert_eq!(auto.after(1, false), ReadPath::Take);
        assert!(!auto.is_direct());
    }

    #[test]
    fn missing_pages_are_read_past_the_cache_and_looked_for_again() {
        let Some(auto) = AutoReadFile::new(ReadPath::Take) else {
            return;
        };
        assert_eq!(auto.after(16, false), ReadPath::Past);
        assert!(auto.is_direct());
        assert_eq!(auto.after(255, false), ReadPath::Past);
        assert_eq!(auto.after(1, false), ReadPath::Take);
        assert!(!auto.is_direct());
        // Small reads count too.
        for _ in 0..LOOK_READS {
            auto.file.was_read(ReadPath::Take, 4096, false);
        }
        assert_eq!(auto.file.how(), ReadPath::Past);
    }

    #[test]
    fn reads_that_the_kernel_has_begun_come_from_the_page_cache() {
        let Some(auto) = AutoReadFile::new(ReadPath::Take) else {
            return;
        };
        assert!(auto.file.begin_ahead(ReadPath::Take, 3));
        assert_eq!(auto.after(16, false), ReadPath::Take);
        assert!(!auto.file.begin_ahead(ReadPath::Take, 1), "it drains");
        auto.file.end_ahead(ReadPath::Take, 2);
        assert!(!auto.is_direct());
        auto.file.end_ahead(ReadPath::Take, 1);
        assert!(auto.is_direct());
        assert_eq!(auto.file.how(), ReadPath::Past);
    }

    #[test]
    fn present_pages_are_taken_and_fitting_ones_are_kept() {
        let Some(auto) = AutoReadFile::new(ReadPath::Take) else {
            return;
        };
        for _ in 0..10 {
            assert_eq!(auto.after(1, true), ReadPath::Take);
            assert_eq!(
                auto.after(3, false),
                ReadPath::Take,
                "an eighth and more was there"
            );
        }
        auto.set_left(SIZE as i64);
        assert_eq!(auto.after(16, false), ReadPath::Keep);
    }
}
