//! Kinds of fault, and what tells that a touch was one.

use clap::ValueEnum;
use softfault::Faults;
use softfault::stage::Touched;
use softfault_engine::stage::Stage;

/// What a touch finds, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Nothing: the page is there. No fault, so this is what reading the clock twice costs
    Present,
    /// A page of a file that is in no memory: read past the page cache
    Cold,
    /// A page of a file that the kernel has in its page cache
    PageCache,
    /// As cold, of a page that was there and was evicted, with all of the budget in use: with its share of reclaim
    Evicted,
    /// Pages of a file that read-ahead has brought, or is bringing, and that are not mapped yet
    ReadAhead,
    /// A read of anonymous memory that was never written
    ZeroRead,
    /// The first write to a page of anonymous memory
    ZeroWrite,
    /// A page of anonymous memory that is in swap, with its share of reclaim
    SwapIn,
    /// A write to a page of a file, or of a private mapping of it, that is there and write-protected
    Protected,
    /// The first write to a page of a private mapping of a file: read, and the program's own from then on
    PrivateCopy,
}

impl Kind {
    /// The name in arguments, tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Cold => "cold",
            Self::PageCache => "page-cache",
            Self::Evicted => "evicted",
            Self::ReadAhead => "read-ahead",
            Self::ZeroRead => "zero-read",
            Self::ZeroWrite => "zero-write",
            Self::SwapIn => "swap-in",
            Self::Protected => "protected",
            Self::PrivateCopy => "private-copy",
        }
    }

    /// True if the touch writes.
    pub fn writes(self) -> bool {
        matches!(self, Self::ZeroWrite | Self::Protected | Self::PrivateCopy)
    }

    /// True if a touch went the way of this kind.
    pub fn is(self, touched: &Touched) -> bool {
        let came_by = |stage: Stage| touched.entered[stage as usize] > 0;
        let faulted = came_by(Stage::Handler);
        match self {
            Self::Present => !faulted,
            Self::Cold | Self::PageCache | Self::Evicted | Self::SwapIn => came_by(Stage::Read),
            Self::ReadAhead => faulted && !came_by(Stage::Read),
            Self::ZeroRead => came_by(Stage::Zero),
            Self::ZeroWrite => came_by(Stage::Copy) && !came_by(Stage::Read),
            Self::Protected => came_by(Stage::Unprotect) && !came_by(Stage::Read),
            Self::PrivateCopy => came_by(Stage::Read) && came_by(Stage::Copy),
        }
    }
}

/// How the kernel tells of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ToldBy {
    /// By SIGBUS, in the thread that touches
    Signals,
    /// By messages to threads of the engine
    Messages,
}

impl ToldBy {
    /// The name in arguments, tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Signals => "signals",
            Self::Messages => "messages",
        }
    }

    /// What the library calls it.
    pub fn faults(self) -> Faults {
        match self {
            Self::Signals => Faults::Signals,
            Self::Messages => Faults::Messages,
        }
    }
}
