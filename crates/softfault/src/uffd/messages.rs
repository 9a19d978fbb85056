//! Threads that sleep in a fault: the messages that report it, and the calls that end their sleep.

use super::abi::{self, Message, Poisoned};
use super::mmu::UffdMmu;
use core::ops::Range;
use core::slice::from_ref;
use core::sync::atomic::Ordering::Relaxed;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mmu::Mmu;

impl UffdMmu {
    /// Hands on the messages that are there of threads that sleep in a fault: of one descriptor, up to `most` of at most
    /// [`MESSAGES`](abi::MESSAGES). For one thread at a time, with [`Faults::Threads`](super::Faults::Threads) or
    /// [`Faults::Messages`](super::Faults::Messages).
    pub fn read_messages(&self, from: u8, most: usize, each: impl FnMut(Message)) {
        if let Some(fd) = self.descriptors[usize::from(from)].get() {
            abi::read((fd, from), most, each);
        }
    }

    /// Sleeps until there may be a message, for the `again`th time since the last; of which descriptors there may be one, a bit each. Where
    /// one may come `soon`, looks for a moment first. Numbers that were `seen` a moment ago, all of them, are not looked at.
    pub fn wait_for_messages(&self, again: u32, seen: bool, soon: bool) -> u8 {
        abi::wait(self.opened(), again, seen, soon)
    }

    /// Lets a touch of this page fail, by the kernel as by the program, if it is missing.
    pub fn poison(&self, addr: usize) -> Poisoned {
        self.has_poison.store(true, Relaxed);
        abi::poison(self.first(), addr & !(PAGE_SIZE - 1), PAGE_SIZE)
    }

    /// Lets touches of some pages, whose bytes are not wanted any more, fail no longer. The memory does not know which of them were poisoned:
    /// to it nothing is there.
    pub fn zap_poison(&self, pages: &Range<usize>) {
        if self.has_poison.load(Relaxed) {
            self.zap(from_ref(pages));
        }
    }

    /// Lets threads that sleep in a fault of this page touch it again, whose messages came by this descriptor. The kernel looks at all that
    /// sleep by it: that is why there are several.
    pub fn wake(&self, from: u8, addr: usize) {
        let page = addr & !(PAGE_SIZE - 1);
        let fd = self.descriptors[usize::from(from)].get();
        abi::wake(fd.expect("a message came by it"), &(page..page + PAGE_SIZE));
    }
}
