//! Kinds of fault, and the counts by which a touch is recognised as one.

use clap::ValueEnum;
use softfault::Faults;
use softfault::stage::Touched;
use softfault_engine::stage::Stage;

/// The state of the touched page, and the fault that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The page is present. There is no fault: this is the cost of reading the clock twice
    Present,
    /// A page of a file that is not in memory: a direct read
    Cold,
    /// A page of a file that the kernel has in its page cache
    PageCache,
    /// As cold, for a page that was evicted, with the whole budget in use: includes its share of reclaim
    Evicted,
    /// Pages of a file that read-ahead has read, or is reading, and that are not mapped yet
    ReadAhead,
    /// A read of anonymous memory that was never written
    ZeroRead,
    /// The first write to a page of anonymous memory
    ZeroWrite,
    /// A page of anonymous memory in swap: includes its share of reclaim
    SwapIn,
    /// A write to a present, write-protected page of a file or of a private mapping of a file
    Protected,
    /// The first write to a page of a private mapping of a file: the page is read, and is private from then on
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

/// How the kernel reports a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ToldBy {
    /// By SIGBUS, in the touching thread
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

    /// The name of the library for it.
    pub fn faults(self) -> Faults {
        match self {
            Self::Signals => Faults::Signals,
            Self::Messages => Faults::Messages,
        }
    }
}
