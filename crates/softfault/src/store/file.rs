//! A file as a store.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use softfault_engine::PAGE_SIZE;
use softfault_engine::store::{Complete, Extent, NO_COOKIE, Read, Reap, Store, StoreError};

use super::around::{self, Around};
use super::descriptor::{Descriptor, Source};
use super::errno;
use super::extent::{self, LastData};
use super::identity::{self, FileIdentity};
use super::kept;
use super::open::{Mode, OpenedFile, Wanted, WhyBuffered, bytes_allocated, open};
use super::read_path::{FileReadPath, ReadPath};
use super::reads::{ReadPolicy, Reads};
use super::ring::{Request, Ring, Rings, RingsOnDemand, apart};
use super::stream::Streams;

/// A file, or a block device, to be read a page or more at a time.
///
/// Bytes of a buffer past the end of the file may be anything after a read
/// (direct ones write whole blocks): the caller zeroes them.
#[derive(Debug)]
pub struct FileStore {
    /// Immutable. Open for reading. Where it is is known to the rings.
    pub(super) file: Box<Descriptor>,
    /// Immutable. The same file, to look for holes in, if it had any when it was opened.
    /// Without it, all is data.
    holes: Option<Descriptor>,
    /// Immutable. How it can be read; how it is read the descriptor knows.
    mode: Mode,
    /// Immutable. A block device.
    pub(super) device: bool,
    /// Immutable. Its times do not tell of all changes.
    mtime_ignores_stores: bool,
    /// Immutable. Byte before which the file is known to have no holes.
    dense: u64,
    /// Protected by its own sequence.
    last_data: LastData,
    /// Long scans.
    streams: Streams,
    /// Single pages, while the pages read stay in the page cache.
    around: Around,
    /// MADV_RANDOM was given: only touched pages are read. Relaxed: nothing
    /// depends on when a thread sees it.
    random: AtomicBool,
    /// The rings, and which of them is this store's, once faults are about to read it.
    rings: OnceLock<(Arc<Rings>, usize)>,
    /// Immutable. Where they come from then.
    engines: Option<Arc<RingsOnDemand>>,
}

impl FileStore {
    /// Opens the file behind `fd` anew, past the page cache where that is
    /// possible. The caller's descriptor may be closed afterwards; its flags
    /// and position stay as they are. Without `rings`, or where they cannot
    /// serve this file, [`submit`](Store::submit) starts nothing.
    ///
    /// Errors: directories, pipes, sockets, character devices; descriptors
    /// that are not open for reading.
    pub fn open(fd: BorrowedFd<'_>, rings: Option<Arc<Rings>>) -> io::Result<Self> {
        Self::open_alone(fd, rings, Reads::Direct)
    }

    /// As [`open`](Self::open), but through the page cache, which is dropped behind each read.
    pub fn open_buffered(fd: BorrowedFd<'_>, rings: Option<Arc<Rings>>) -> io::Result<Self> {
        let opened = open(fd, Wanted::Buffered)?;
        let store = Self::from_opened(opened, None, FileReadPath::always(ReadPath::Drop))?;
        store.read_by(rings.as_ref());
        Ok(store)
    }

    fn open_alone(fd: BorrowedFd<'_>, rings: Option<Arc<Rings>>, reads: Reads) -> io::Result<Self> {
        let store = Self::open_by(fd, None, &Arc::new(ReadPolicy::alone(reads)))?;
        store.read_by(rings.as_ref());
        Ok(store)
    }

    /// As [`open`](Self::open), by an engine's policy; by its rings, once [`will_be_read`](Self::will_be_read) was
    /// called.
    pub(crate) fn open_by(
        fd: BorrowedFd<'_>,
        engines: Option<&Arc<RingsOnDemand>>,
        policy: &Arc<ReadPolicy>,
    ) -> io::Result<Self> {
        let wanted = match policy.reads() {
            Reads::Direct => Wanted::Direct,
            Reads::Cached => Wanted::Buffered,
            Reads::Auto => Wanted::Either,
        };
        let opened = open(fd, wanted)?;
        let way = FileReadPath::first(policy, &opened);
        if wanted == Wanted::Either && way.how() == ReadPath::Past && opened.ours {
            let set = opened.file.set_flags(libc::O_DIRECT);
            set.map_err(errno::of_call("fcntl"))?;
        }
        Self::from_opened(opened, engines.cloned(), way)
    }

    fn from_opened(
        opened: OpenedFile,
        engines: Option<Arc<RingsOnDemand>>,
        way: FileReadPath,
    ) -> io::Result<Self> {
        kept::look();
        let OpenedFile {
            mut file,
            mode,
            holes,
            device,
            ours: _,
        } = opened;
        file.way = way;
        // Those in memory have no device.
        let mtime_ignores_stores = libc::major(file.opened().st_dev) == 0 && file.is_in_memory();
        let mut store = Self {
            mtime_ignores_stores,
            file: Box::new(file),
            holes,
            mode,
            device,
            dense: 0,
            last_data: LastData::default(),
            streams: Streams::default(),
            around: Around::default(),
            random: AtomicBool::new(false),
            rings: OnceLock::new(),
            engines,
        };
        let len = store.opened_as()?.size;
        if device || bytes_allocated(store.file.opened()) >= len {
            store.dense = len;
        }
        Ok(store)
    }

    /// The process is about to fork: true if its child inherits a descriptor of the file as it is.
    pub(crate) fn allow_inherit(&self) -> bool {
        self.file.allow_inherit()
    }

    /// In a child: that descriptor.
    pub(crate) fn lent(&self) -> Option<RawFd> {
        self.file.lent()
    }

    /// Faults are about to read it: ahead, too, from now on. Not for the fault handler.
    pub(crate) fn will_be_read(&self) {
        if self.rings.get().is_none() {
            self.read_by(self.engines.as_ref().and_then(|engines| engines.make()));
        }
    }

    /// Somebody knows how most of it will be read.
    pub(crate) fn advise(&self, random: bool) {
        self.random.store(random, Relaxed);
    }

    /// True if nothing is to be read that was not touched.
    pub(crate) fn is_random(&self) -> bool {
        self.random.load(Relaxed)
    }

    fn read_by(&self, rings: Option<&Arc<Rings>>) {
        let drops = self.file.how().drops_behind();
        if let Some(rings) = rings.filter(|rings| !drops || rings.serves_buffered()) {
            self.rings.get_or_init(|| (rings.clone(), rings.assign()));
        }
    }

    /// How the file is read, now.
    pub fn mode(&self) -> Mode {
        match self.file.how() {
            ReadPath::Past => Mode::Direct,
            ReadPath::Keep | ReadPath::Take | ReadPath::Drop if self.mode == Mode::Direct => {
                Mode::Buffered(WhyBuffered::Asked)
            }
            ReadPath::Keep | ReadPath::Take | ReadPath::Drop => self.mode,
        }
    }

    /// Which version of the file is there, now.
    pub fn identity(&self) -> io::Result<FileIdentity> {
        let stat = self.file.stat().map_err(errno::io)?;
        let mut identity = FileIdentity::from_stat(&stat);
        if self.device {
            identity.size = self.size().map_err(errno::io)?;
        }
        Ok(identity)
    }

    /// Which version of the file was opened.
    pub(crate) fn opened_as(&self) -> io::Result<FileIdentity> {
        let mut identity = FileIdentity::from_stat(self.file.opened());
        if self.device {
            identity.size = self.size().map_err(errno::io)?;
        }
        Ok(identity)
    }

    /// True if the file had a name when it was opened.
    pub(crate) fn had_name(&self) -> bool {
        self.file.opened().st_nlink > 0
    }

    /// True if stores of others to a shared mapping do not show in the file's times: of a file system in memory, which writes
    /// nothing back.
    pub(crate) fn mtime_ignores_stores(&self) -> bool {
        self.mtime_ignores_stores
    }

    /// True if it has a name in some directory. Unsure: true.
    pub(crate) fn has_name(&self) -> bool {
        !(self.file.stat()).is_ok_and(|stat| stat.st_nlink == 0)
    }

    pub(super) fn size(&self) -> Result<u64, i32> {
        if self.device {
            return identity::device_bytes_of(&self.file);
        }
        let stat = self.file.stat()?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// A read is about to begin.
    #[inline(never)]
    fn will_read(&self, how: ReadPath, offset: u64, bytes: usize) {
        let counts = how == ReadPath::Keep || self.file.fits() && !self.is_random();
        if !counts || !self.file.is_ours() {
            return;
        }
        let bytes = bytes as u64;
        if how != ReadPath::Keep {
            if let Some(each) = self.file.way.scans_noted_each()
                && let Some(end) = self.streams.read_past(offset, bytes, each)
            {
                self.file.way.scanned_to(end);
            }
        } else if let Some(on) = self.streams.read(offset, bytes) {
            self.file.kernel_reads_ahead(on);
            if on {
                self.file.way.in_order();
            }
        }
    }

    /// Whether a read is of a page by itself, beside which pages may be brought into the page cache.
    fn is_single(&self, how: ReadPath, bytes: usize) -> bool {
        how == ReadPath::Keep && self.file.fits() && around::is_single(bytes) && !self.is_random()
    }

    /// Begins a read, and takes the bytes from the page cache if it `looks` there and finds them.
    ///
    /// # Safety
    /// As for [`Store::read`].
    unsafe fn look(
        &self,
        how: ReadPath,
        looks: bool,
        (offset, buffer, bytes): (u64, *mut u8, usize),
    ) -> Option<usize> {
        assert_aligned(offset, buffer, bytes);
        self.will_read(how, offset, bytes);
        if !looks {
            return None;
        }
        // SAFETY: the caller's promise.
        let there = unsafe { self.file.read_if_there(how, offset, buffer, bytes) };
        let arrived = there.ok()?;
        if self.is_single(how, bytes) {
            self.around.found();
        }
        self.has_read(how, offset, bytes, true);
        Some(arrived)
    }

    /// Notes a read that has ended; `was_there`: the page cache had it.
    fn has_read(&self, how: ReadPath, offset: u64, bytes: usize, was_there: bool) {
        if how.drops_behind() {
            self.file.drop_behind(offset, bytes);
        }
        self.file.was_read(how, bytes, was_there);
    }

    /// Reads around a page that has to be waited for.
    #[inline(never)]
    fn read_around(&self, offset: u64) {
        if let Some(block) = self.around.missed(offset) {
            let bytes = (block.end - block.start) as usize;
            self.file
                .advise(block.start, bytes, libc::POSIX_FADV_WILLNEED);
            self.file.was_brought(bytes);
        }
    }

    /// Starts reads in a ring; how many, from the front, were started. The caller is [`submit`](Store::submit)'s.
    fn submit_in(&self, ring: &Ring, how: ReadPath, reads: &[Read]) -> usize {
        ring.submit(reads.len(), |i| {
            let Read {
                cookie,
                offset,
                buffer,
                bytes,
            } = reads[i];
            assert_aligned(offset, buffer, bytes);
            Request {
                cookie,
                source: Source::of(&self.file),
                offset,
                buffer,
                bytes,
                how,
                whole: false,
                then: None,
            }
        })
    }

    fn ring(&self) -> Option<&Ring> {
        let (rings, index) = self.rings.get()?;
        rings.get(*index)
    }
}

impl Store for FileStore {
    fn len(&self) -> Result<u64, StoreError> {
        self.size().map_err(errno::store)
    }

    fn extent(&self, offset: u64) -> Result<Extent, StoreError> {
        if offset < self.dense {
            // The last page may reach past the end.
            return Ok(Extent::Data(0..extent::page_after(self.dense)));
        }
        let Some(holes) = &self.holes else {
            let page = extent::page_of(offset);
            let end = extent::page_after(self.size().map_err(errno::store)?);
            return Ok(Extent::Data(page..end.max(page + PAGE_SIZE as u64)));
        };
        if let Some(range) = self.last_data.get(offset) {
            return Ok(Extent::Data(range));
        }
        let found = extent::seek(holes, offset, || self.size()).map_err(errno::store)?;
        if let Extent::Data(range) = &found {
            self.last_data.set(range);
        }
        Ok(found)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        let how = self.file.how();
        // Only where it matters: it costs a call.
        let looks = how == ReadPath::Take || self.is_single(how, bytes);
        // SAFETY: the caller's promise.
        unsafe {
            match self.look(how, looks, (offset, buffer, bytes)) {
                Some(arrived) => Ok(arrived),
                None => self.read_missing(offset, buffer, bytes),
            }
        }
    }

    unsafe fn read_at_hand(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Option<usize> {
        let how = self.file.how();
        // SAFETY: the caller's promise.
        unsafe { self.look(how, how.is_cached(), (offset, buffer, bytes)) }
    }

    unsafe fn read_missing(
        &self,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> Result<usize, StoreError> {
        let how = self.file.how();
        if self.is_single(how, bytes) {
            self.read_around(offset);
        }
        // SAFETY: the caller's promise.
        let arrived = unsafe { self.file.read_as(how, offset, buffer, bytes) };
        self.has_read(how, offset, bytes, false);
        arrived.map_err(errno::store)
    }

    unsafe fn submit(&self, reads: &[Read]) -> usize {
        let Some(ring) = self.ring() else { return 0 };
        let how = self.file.how();
        let serves = |(rings, _): &(Arc<Rings>, usize)| rings.serves_buffered();
        if how.drops_behind() && !self.rings.get().is_some_and(serves) {
            return 0;
        }
        if !self.file.begin_ahead(how, reads.len()) {
            return 0;
        }
        for read in reads {
            self.will_read(how, read.offset, read.bytes);
        }
        let started = self.submit_in(ring, how, reads);
        self.file.end_ahead(how, reads.len() - started);
        started
    }

    fn submits_demands(&self) -> bool {
        // Through the page cache, `read` looks first at what is there. A thread that serves the faults of others begins the read
        // apart and goes on to the next fault: it would have to wait for this one.
        self.file.how() == ReadPath::Past && !self.takes_apart()
    }

    fn takes_apart(&self) -> bool {
        // Through the page cache, those that do not find their bytes would have to be waited for.
        let past = self.file.how() == ReadPath::Past && !self.file.waits();
        past && self.ring().is_some() && apart::ring().is_some()
    }

    unsafe fn submit_apart(&self, reads: &[Read]) -> usize {
        match apart::ring() {
            Some(ring) if self.takes_apart() => self.submit_in(ring, ReadPath::Past, reads),
            _ => 0,
        }
    }

    fn reap(&self, cookie: u64, complete: &dyn Complete, timeout_ns: u64) -> Reap {
        match (self.ring(), self.rings.get()) {
            (Some(_), Some((rings, _))) if cookie == NO_COOKIE => {
                rings.poll(complete);
                Reap::NotInFlight
            }
            (Some(ring), _) => ring.reap(cookie, complete, timeout_ns),
            (None, _) => Reap::NotInFlight,
        }
    }

    fn before_fork(&self) {
        self.file.before_fork();
    }

    fn after_fork(&self) {
        self.file.after_fork();
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        // A ring reads the rest of a short read from it.
        let source = Source::of(&self.file);
        let reading = self.ring().is_some_and(|ring| ring.reads_from(source));
        assert!(
            !reading || std::thread::panicking(),
            "a store was dropped under its reads"
        );
    }
}

fn assert_aligned(offset: u64, buffer: *mut u8, bytes: usize) {
    let all = offset | buffer.addr() as u64 | bytes as u64;
    assert!(
        all.is_multiple_of(PAGE_SIZE as u64),
        "reads are of whole pages"
    );
    assert!(bytes > 0, "a read of nothing");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;

    /// A page by itself, aligned as a frame is.
    #[repr(align(4096))]
    struct Frame([u8; PAGE_SIZE]);

    #[test]
    fn only_what_the_page_cache_has_is_at_hand() {
        let program = std::env::current_exe().expect("a path");
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE);
        let Ok(mut file) = options.open(program.parent().expect("a directory")) else {
            return softfault_skip::skipped("direct", "no files without a name");
        };
        let pages = (0..64u8).flat_map(|page| [page; PAGE_SIZE]);
        file.write_all(&pages.collect::<Vec<u8>>())
            .expect("written");
        file.sync_all().expect("on the device");
        let store = FileStore::open_alone(file.as_fd(), None, Reads::Cached).expect("opened");
        let mut frame = Box::new(Frame([0; PAGE_SIZE]));
        let buffer = frame.0.as_mut_ptr();
        let offset = |page: u64| page * PAGE_SIZE as u64;
        // SAFETY: the frame, which nobody else uses.
        let at_hand = |page| unsafe { store.read_at_hand(offset(page), buffer, PAGE_SIZE) };
        assert_eq!(at_hand(5), Some(PAGE_SIZE));
        // SAFETY: as above.
        assert_eq!(unsafe { buffer.read() }, 5);
        store
            .file
            .advise(0, 64 * PAGE_SIZE, libc::POSIX_FADV_DONTNEED);
        if at_hand(60).is_some() {
            return softfault_skip::skipped("direct", "no page leaves the page cache");
        }
        // SAFETY: as above.
        let missing = unsafe { store.read_missing(offset(60), buffer, PAGE_SIZE) };
        assert_eq!(missing, Ok(PAGE_SIZE));
        // SAFETY: as above.
        assert_eq!(unsafe { buffer.read() }, 60);
        assert_eq!(at_hand(60), Some(PAGE_SIZE));
    }

    #[test]
    fn past_the_page_cache_nothing_is_at_hand() {
        let program = std::env::current_exe().expect("a path");
        let file = File::open(program).expect("opened");
        let store = FileStore::open(file.as_fd(), None).expect("opened");
        if store.mode() != Mode::Direct {
            return softfault_skip::skipped("direct", "no reads past the page cache");
        }
        let mut frame = Box::new(Frame([0; PAGE_SIZE]));
        // SAFETY: the frame, which nobody else uses.
        let at_hand = unsafe { store.read_at_hand(0, frame.0.as_mut_ptr(), PAGE_SIZE) };
        assert_eq!(at_hand, None);
    }
}
