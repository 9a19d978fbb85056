//! The stages of a fault's way, by which `softfault lab profile` tells where its time goes.
//!
//! The clock and the record are `sync`'s; here are the stages and their beginnings. A stage that begins inside
//! another interrupts that: the time of a copy is not counted for the fault that asks for it.

/// The stage of a touch. The time that belongs to no other stage is [`Serve`](Self::Serve)'s, once the engine has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// The processor's fault and the kernel's, until a handler or a thread of ours runs.
    Entry,
    /// The handler, or the thread that reads messages, outside of the engine.
    Handler,
    /// Between two threads of ours.
    Switch,
    /// All that has no other name: attempts, folio states and locks, lists, charges, statistics.
    Serve,
    /// The VMA is found and locked.
    VmaLock,
    /// The look-up in the index.
    LookUp,
    /// Read-ahead chooses the pages to read.
    ReadAhead,
    /// The look whether the file has data there.
    Extent,
    /// A folio, its frames, and its place in the index.
    Frames,
    /// Reads that no thread waits for here are handed to the system.
    Submit,
    /// The read that this touch waits for.
    Read,
    /// The wait for another thread's read, or work, on the folio.
    FolioWait,
    /// Room is made: pages are chosen, counted out and forgotten.
    Reclaim,
    /// Evicted pages leave the page tables.
    Zap,
    /// Evicted pages are written to swap, or to their file.
    WriteOut,
    /// Pages are copied into the window, or filled with zeros of their own.
    Copy,
    /// Zeros that cost no memory are mapped.
    Zero,
    /// Memory is moved into the window.
    Move,
    /// Pages are write-protected.
    Protect,
    /// A protected page becomes writable.
    Unprotect,
    /// The thread that touched is woken.
    Wake,
    /// From the end of the handler, or from the wake-up, until the touch is done.
    Return,
}

impl Stage {
    /// All of them, in the order of a fault's way.
    pub const ALL: [Self; 22] = [
        Self::Entry,
        Self::Handler,
        Self::Switch,
        Self::Serve,
        Self::VmaLock,
        Self::LookUp,
        Self::ReadAhead,
        Self::Extent,
        Self::Frames,
        Self::Submit,
        Self::Read,
        Self::FolioWait,
        Self::Reclaim,
        Self::Zap,
        Self::WriteOut,
        Self::Copy,
        Self::Zero,
        Self::Move,
        Self::Protect,
        Self::Unprotect,
        Self::Wake,
        Self::Return,
    ];

    /// This one lasts until the answer is dropped; then the one before goes on.
    #[inline(always)]
    pub fn span(self) -> sync::stage::Span {
        sync::stage::span(self as u8)
    }
}
