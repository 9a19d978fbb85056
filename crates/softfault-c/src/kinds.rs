//! The kind of map for the arguments of mmap(2).

use crate::access::{PAGE_SIZE, Prot};
use crate::failure::Failure;
use crate::fixed;
use crate::maps::{self, Access};
use core::ffi::{c_int, c_void};
use core::ops::Range;
use softfault::store::FileIdentity;
use softfault::{Engine, MmapOptions, MmapRaw};
use std::io;
use std::os::fd::BorrowedFd;

/// The arguments of mmap(2).
pub(crate) struct Arguments {
    /// A hint that is not taken, unless `flags` say that the map is to be there.
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) prot: c_int,
    pub(crate) flags: c_int,
    pub(crate) fd: c_int,
    pub(crate) offset: libc::off_t,
}

/// x86's; `libc` has it nowhere else.
const MAP_32BIT: c_int = 0x40;

/// Addresses that a process has, on the machines that there are.
const ADDRESSES: usize = 1 << 48;

/// Flags that say something here.
const KNOWN: c_int = libc::MAP_TYPE
    | libc::MAP_ANONYMOUS
    | libc::MAP_POPULATE
    | libc::MAP_LOCKED
    | libc::MAP_STACK
    | libc::MAP_FIXED
    | libc::MAP_FIXED_NOREPLACE
    | libc::MAP_HUGETLB
    | libc::MAP_HUGE_MASK << libc::MAP_HUGE_SHIFT;

/// Flags that Linux ignores, or that only forbid an action that does not happen here.
const IGNORED: c_int =
    libc::MAP_NORESERVE | libc::MAP_NONBLOCK | libc::MAP_DENYWRITE | libc::MAP_EXECUTABLE;

impl Arguments {
    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    fn is_anonymous(&self) -> bool {
        self.has(libc::MAP_ANONYMOUS)
    }

    /// Maps over an engine, or the process's default one.
    pub(crate) fn map(&self, engine: Option<&Engine>) -> Result<*mut c_void, Failure> {
        // In the kernel's order, so that of two errors the same one is told.
        if !(self.offset as usize).is_multiple_of(PAGE_SIZE) {
            return Err(Failure::invalid(
                "the offset is not a multiple of the page size",
            ));
        }
        let opened = match self.is_anonymous() {
            true => None,
            false => Some(self.opened()?),
        };
        if self.length == 0 {
            return Err(Failure::invalid("the length is 0"));
        }
        if self.length > ADDRESSES {
            return Err(Failure::new(
                libc::ENOMEM,
                "the length does not fit in the address space",
            ));
        }
        if opened.is_some() && self.offset < 0 {
            return Err(Failure::new(libc::EOVERFLOW, "the offset is negative"));
        }
        let bytes = crate::access::whole_pages(self.length) as libc::off_t;
        if opened.is_some()
            && self.offset.checked_add(bytes).is_none()
            && about_file(self.fd).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG)
        {
            let text = "the map would end past the largest offset of a file";
            return Err(Failure::new(libc::EOVERFLOW, text));
        }
        let fixed = match self.has(libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) {
            true => Some(fixed::pages(self.addr, self.length, ADDRESSES)?),
            false => None,
        };
        if let Some(pages) = &fixed {
            fixed::replaces(pages, self.flags)?;
        }
        let unknown = self.flags & !(KNOWN | IGNORED);
        let shared = match self.flags & libc::MAP_TYPE {
            libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => true,
            libc::MAP_PRIVATE => false,
            _ => {
                return Err(Failure::invalid("flags needs MAP_SHARED or MAP_PRIVATE"));
            }
        };
        if unknown != 0 {
            return Err(unsupported(unknown));
        }
        let prot = match &opened {
            Some(opened) => opened.allow(self.prot, shared)?,
            None => Prot::of(self.prot)?,
        };
        if let Some(pages) = fixed {
            self.put(&pages, prot, shared)?;
            return Ok(self.addr);
        }
        let engine = match engine {
            Some(engine) => engine,
            None => Engine::process_default()?,
        };
        let map = match opened {
            None => self.anonymous(engine, prot, shared)?,
            Some(_) if self.has(libc::MAP_HUGETLB) => {
                return Err(Failure::invalid("MAP_HUGETLB is for anonymous memory"));
            }
            Some(_) if shared => self.shared(engine, prot)?,
            Some(_) => self.private(engine, prot)?,
        };
        let writable = prot == Prot::Write;
        // In whole pages, which may be larger ones.
        let asked = map.len();
        let start = maps::enter(map, asked, Access { shared, writable });
        let pages = start..start + crate::access::whole_pages(asked);
        if let Err(error) = self.bring_in(&pages) {
            // It is there: it was entered.
            let _ = maps::unmap(&pages);
            return Err(error);
        }
        Ok(start as *mut c_void)
    }

    /// MAP_FIXED, over pages that are ours.
    fn put(&self, pages: &Range<usize>, prot: Prot, shared: bool) -> Result<(), Failure> {
        let special = libc::MAP_STACK | libc::MAP_HUGETLB;
        if shared || !self.is_anonymous() || self.has(special) {
            return Err(Failure::unsupported(
                "MAP_FIXED works for private anonymous memory only: the engine chooses the address of other maps",
            ));
        }
        fixed::put_zeros(pages, prot == Prot::Write, self.flags)?;
        let brought = self.bring_in(pages);
        if brought.is_err() {
            // It is there: it was put.
            let _ = maps::unmap(pages);
        }
        brought
    }

    /// MAP_LOCKED, and MAP_POPULATE: which is advice, as in mmap(2).
    fn bring_in(&self, pages: &Range<usize>) -> Result<(), Failure> {
        if self.has(libc::MAP_LOCKED) {
            return maps::lock(pages);
        }
        if self.has(libc::MAP_POPULATE) {
            for part in maps::Part::of(pages).unwrap_or_default() {
                let advice = match part.access.writable && !part.access.shared {
                    true => softfault::Advice::PopulateWrite,
                    false => softfault::Advice::WillNeed,
                };
                let offsets = part.offsets();
                let _ = part.map.advise_range(advice, offsets.start, offsets.len());
            }
        }
        Ok(())
    }

    fn options(&self) -> MmapOptions {
        let mut options = MmapOptions::new();
        // Calls reach all that a touch does.
        options.len(self.whole_pages());
        if !self.is_anonymous() {
            options.offset(self.offset as u64);
        }
        options
    }

    /// The length in whole pages; of a file that has huge ones in those.
    fn whole_pages(&self) -> usize {
        let page = match self.is_anonymous() {
            true => PAGE_SIZE,
            // An error comes back from the map itself.
            false => MmapOptions::page_size_of(self.fd).unwrap_or(PAGE_SIZE),
        };
        self.length.next_multiple_of(page)
    }

    fn anonymous(&self, engine: &Engine, prot: Prot, shared: bool) -> Result<MmapRaw, Failure> {
        if shared {
            return Err(Failure::unsupported(
                "MAP_SHARED|MAP_ANONYMOUS is not supported: map a memfd instead",
            ));
        }
        let mut options = self.options();
        if self.has(libc::MAP_STACK) {
            options.stack();
        }
        if self.has(libc::MAP_HUGETLB) {
            let bits = self.flags >> libc::MAP_HUGE_SHIFT & libc::MAP_HUGE_MASK;
            options.huge((bits != 0).then_some(bits as u8));
            options.len(self.length.next_multiple_of(options.page_size()));
        }
        protected(options.map_anon_in(engine)?.into(), prot)
    }

    /// MAP_SHARED of a file.
    fn shared(&self, engine: &Engine, prot: Prot) -> Result<MmapRaw, Failure> {
        if prot == Prot::Write {
            // SAFETY: bytes are given away by pointers only.
            let map = unsafe { self.options().map_mut_in(engine, self.fd) }?;
            return Ok(map.into());
        }
        let size = size_of_file(self.fd)?;
        let rest = size.saturating_sub(self.offset as u64);
        let pages = self.whole_pages() as u64;
        if rest == 0 || pages > rest.next_multiple_of(PAGE_SIZE as u64) {
            // A window ends with its file. A touch behind it is a SIGBUS, and its place is its own.
            return self.private(engine, prot);
        }
        let mut options = self.options();
        options.len((pages as usize).min(rest as usize));
        // SAFETY: bytes are given away by pointers only.
        match unsafe { options.map_in(engine, self.fd) } {
            Ok(map) => Ok(map.into()),
            // It was truncated meanwhile.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => self.private(engine, prot),
            Err(error) => Err(error.into()),
        }
    }

    /// MAP_PRIVATE of a file.
    fn private(&self, engine: &Engine, prot: Prot) -> Result<MmapRaw, Failure> {
        // SAFETY: bytes are given away by pointers only.
        let map = unsafe { self.options().map_copy_in(engine, self.fd) }?;
        protected(map.into(), prot)
    }

    /// How the file is open.
    fn opened(&self) -> Result<Opened, Failure> {
        // SAFETY: only asks.
        let flags = unsafe { libc::fcntl(self.fd, libc::F_GETFL) };
        if flags < 0 || flags & libc::O_PATH != 0 {
            return Err(Failure::not_open(self.fd));
        }
        Ok(Opened(flags & libc::O_ACCMODE))
    }
}

/// How a file is open.
struct Opened(c_int);

impl Opened {
    /// An error if a file that is open so cannot be mapped so.
    fn allow(&self, prot: c_int, shared: bool) -> Result<Prot, Failure> {
        if shared && prot & libc::PROT_WRITE != 0 && self.0 != libc::O_RDWR {
            let text = "a writable shared map needs a file that is open for reading and writing";
            return Err(Failure::new(libc::EACCES, text));
        }
        if self.0 == libc::O_WRONLY {
            let text = "the file is not open for reading";
            return Err(Failure::new(libc::EACCES, text));
        }
        Prot::of(prot)
    }
}

/// A private map, as it may be used.
fn protected(mut map: MmapRaw, prot: Prot) -> Result<MmapRaw, Failure> {
    if prot == Prot::Read {
        map.protect(false)?;
    }
    Ok(map)
}

/// Bytes of a file, or of a block device.
fn size_of_file(fd: c_int) -> Result<u64, Failure> {
    // SAFETY: the program has it open, as `opened` has seen, and keeps it so while this call uses it.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(FileIdentity::of(fd)?.size)
}

fn about_file(fd: c_int) -> io::Result<libc::stat> {
    // SAFETY: zeros are a value of each field.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: fills the structure.
    match unsafe { libc::fstat(fd, &mut stat) } {
        0 => Ok(stat),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Flags that mmap(2) may have, and we not.
fn unsupported(flags: c_int) -> Failure {
    let named = [
        (
            libc::MAP_GROWSDOWN,
            "MAP_GROWSDOWN is not supported: map stacks by mmap(2)",
        ),
        (
            MAP_32BIT,
            "MAP_32BIT is not supported: the engine chooses the address",
        ),
        (
            libc::MAP_SYNC,
            "MAP_SYNC is not supported: map persistent memory by mmap(2)",
        ),
    ];
    let known = named.iter().find(|(flag, _)| flags & flag != 0);
    match known {
        Some((_, text)) => Failure::unsupported(*text),
        None => Failure::unsupported(format!("flags has unknown bits: {flags:#x}")),
    }
}
