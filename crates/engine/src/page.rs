//! The types that all layers use: a page's address and access, the errors of a touch of
//! it, and the interruption of a thread that waits for one.
//!
//! Nothing here names another module of the engine.

/// Bytes of a base page as a shift. x86-64; the engine takes it from here only.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes of a base page.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;

/// Advice of a caller on its accesses. The names are those of
/// `madvise(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Advice {
    /// No particular pattern: the engine finds it out.
    #[default]
    Normal,
    /// Random: no read-ahead.
    Random,
    /// Sequential: read far ahead.
    Sequential,
}

/// The protection of a mapping. A greater one allows more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub enum Protection {
    /// Nothing.
    #[default]
    None,
    /// Reading.
    Read,
    /// Reading and writing.
    ReadWrite,
}

impl Protection {
    /// True if a touch is allowed: a write, if `write`.
    pub fn allows(self, write: bool) -> bool {
        match write {
            true => self == Self::ReadWrite,
            false => self != Self::None,
        }
    }
}

/// In which order folios are evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Prefetched folios go first once they are stale, and last before.
    StaleFirst,
    /// In the order of arrival, mapped or not, as on Linux's one list
    /// of inactive pages. For the baselines of read-ahead, whose hits depend
    /// on the rest of older windows.
    Arrival,
}

/// How a fault came about, and how far it got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultFlags {
    /// The touch was a write.
    pub write: bool,
    /// The fault has waited for I/O: a page that it finds now is its own work, and no hit.
    pub tried: bool,
    /// The last wait was for a read, which did its work: the folio should be
    /// there.
    pub io_done: bool,
    /// The number of pages from this one on that the caller asks for, of one block: only these
    /// are read, and the policy of read-ahead is not asked. 0: a touch, the number is unknown.
    pub asked: u8,
}

/// Why a touch cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultError {
    /// No mapping of ours at the address.
    NotMapped,
    /// The mapping does not allow this kind of access.
    Protection,
    /// Past the end of the file.
    BeyondEnd,
    /// The read failed: the store's errno.
    Io(i32),
    /// The read brought fewer bytes than were written there.
    Short,
    /// The budget or the machine cannot hold the page.
    NoMemory,
}

/// A byte that the program touches, as its address space has it. Page tables know
/// the address in a window, which is a number: where the two are the same it is because a
/// VMA shows the window there, and only [`VmFault`](crate::mm::backing::VmFault) can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultAddress(usize);

impl FaultAddress {
    /// The byte that the program has at `address`.
    pub fn new(address: usize) -> Self {
        Self(address)
    }

    /// Where the program has it: for its address space, and for nobody else.
    pub fn in_space(self) -> usize {
        self.0
    }
}

/// Tells a waiting fault that something else wants its thread: a pending
/// signal, say.
pub trait Interrupt {
    /// True if the fault should give up now and be raised again later.
    fn pending(&self) -> bool;
}

/// For waits that nothing interrupts.
#[derive(Debug, Clone, Copy)]
pub struct NeverInterrupted;

impl Interrupt for NeverInterrupted {
    fn pending(&self) -> bool {
        false
    }
}
