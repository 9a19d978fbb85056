//! Which huge map an address is in, for the SIGBUS handler: no lock, no heap.
//!
//! ```text
//!   state   free ─► taken, being written ─► live ─► taken, until no handler is there ─► free
//!           and how many handlers look at it
//! ```
//! A handler counts itself before it looks whether the slot is live, in one word: the drop of the map
//! sees it, or it sees that the map is gone. So nothing of a map is closed or unmapped
//! that a handler still uses.

use super::count::Counters;
use super::fill::HugeWindow;
use crate::generation::ProcessGeneration;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

const SLOTS: usize = 64;
const FREE: u32 = 0;
const TAKEN: u32 = 1 << 31;
const LIVE: u32 = 1 << 30;
const HANDLERS: u32 = LIVE - 1;

/// Slots, and more of them. Never freed.
struct Block {
    /// Where the maps are: looked through before anything is counted.
    starts: [AtomicUsize; SLOTS],
    ends: [AtomicUsize; SLOTS],
    slots: [MapSlot; SLOTS],
    more: AtomicPtr<Block>,
}

/// A map's.
pub(super) struct MapSlot {
    state: AtomicU32,
    /// Written by the owner of the slot; read while it is live.
    window: UnsafeCell<HugeWindow>,
    pub(super) counted: Counters,
}

// SAFETY: `window` is written by one and read by others as `state` says.
unsafe impl Sync for MapSlot {}

static FIRST: Block = Block::new();
/// Maps that there are: most processes have none, and look no further.
static MAPS: AtomicUsize = AtomicUsize::new(0);

impl Block {
    const fn new() -> Self {
        Self {
            starts: [const { AtomicUsize::new(0) }; SLOTS],
            ends: [const { AtomicUsize::new(0) }; SLOTS],
            slots: [const { MapSlot::new() }; SLOTS],
            more: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    fn next(&self) -> Option<&'static Block> {
        // Acquire pairs with the Release in `grow`.
        // SAFETY: null, or leaked by `grow`.
        unsafe { self.more.load(Ordering::Acquire).as_ref() }
    }

    fn grow(&self) -> &'static Block {
        let fresh = Box::into_raw(Box::new(Block::new()));
        let (set, failed) = (Ordering::AcqRel, Ordering::Acquire);
        let null = core::ptr::null_mut();
        match self.more.compare_exchange(null, fresh, set, failed) {
            // SAFETY: leaked.
            Ok(_) => unsafe { &*fresh },
            Err(other) => {
                // SAFETY: just boxed, and nobody knows it; the other is leaked.
                unsafe {
                    drop(Box::from_raw(fresh));
                    &*other
                }
            }
        }
    }
}

impl MapSlot {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            window: UnsafeCell::new(HugeWindow::NONE),
            counted: Counters::new(),
        }
    }

    /// Counts this handler; false if the map is gone.
    fn enter(&self) -> bool {
        // Acquire pairs with the Release in `TouchableMap::new`: the window is written.
        let before = self.state.fetch_add(1, Ordering::Acquire);
        if before & LIVE == 0 {
            self.leave();
            return false;
        }
        true
    }

    fn leave(&self) {
        // Release pairs with the Acquire in `TouchableMap::drop`: all use of the map is over.
        self.state.fetch_sub(1, Ordering::Release);
    }
}

/// A handler's hold on a map.
pub(super) struct MapInHandler {
    slot: &'static MapSlot,
}

impl MapInHandler {
    pub(super) fn window(&self) -> &HugeWindow {
        // SAFETY: live when this was counted, and so not written to until it is gone.
        unsafe { &*self.slot.window.get() }
    }

    pub(super) fn counted(&self) -> &'static Counters {
        &self.slot.counted
    }
}

impl Drop for MapInHandler {
    fn drop(&mut self) {
        self.slot.leave();
    }
}

/// The map that has this address.
pub(super) fn find(addr: usize) -> Option<MapInHandler> {
    // Relaxed here and below: a thread that touches a map has seen it made, and so all that was written
    // for it.
    if MAPS.load(Ordering::Relaxed) == 0 {
        return None;
    }
    core::iter::successors(Some(&FIRST), |block| block.next()).find_map(|block| {
        (0..SLOTS).find_map(|at| {
            let start = block.starts[at].load(Ordering::Relaxed);
            let end = block.ends[at].load(Ordering::Relaxed);
            let slot = &block.slots[at];
            if !(start..end).contains(&addr) || !slot.enter() {
                return None;
            }
            let held = MapInHandler { slot };
            held.window().range().contains(&addr).then_some(held)
        })
    })
}

/// A map's slot, as long as it is mapped.
pub(crate) struct TouchableMap {
    block: &'static Block,
    at: usize,
    generation: ProcessGeneration,
}

impl TouchableMap {
    /// Lets handlers find a map. The caller keeps the objects that `window` names until this is gone.
    pub(crate) fn new(window: HugeWindow) -> Self {
        let mut block = &FIRST;
        loop {
            if let Some(at) = block.slots.iter().position(take) {
                let entry = Self {
                    block,
                    at,
                    generation: ProcessGeneration::here(),
                };
                block.starts[at].store(window.range().start, Ordering::Relaxed);
                block.ends[at].store(window.range().end, Ordering::Relaxed);
                let slot = entry.slot();
                slot.counted.clear();
                // SAFETY: taken, and not live: nobody else reads or writes it.
                unsafe { *slot.window.get() = window };
                MAPS.fetch_add(1, Ordering::Relaxed);
                // Release pairs with the Acquire in `enter`.
                slot.state.fetch_or(LIVE, Ordering::Release);
                return entry;
            }
            block = block.next().unwrap_or_else(|| block.grow());
        }
    }

    fn slot(&self) -> &'static MapSlot {
        &self.block.slots[self.at]
    }

    /// The map's.
    pub(crate) fn window(&self) -> &HugeWindow {
        // SAFETY: written before, and not again as long as this is.
        unsafe { &*self.slot().window.get() }
    }

    pub(crate) fn counted(&self) -> &'static Counters {
        &self.slot().counted
    }

    /// True if it was made by a process that this one was forked from: here the kernel serves the map.
    pub(crate) fn is_parents(&self) -> bool {
        self.generation.is_parents()
    }
}

/// Takes the slot if it is free. One that a handler has just looked at is not, for the moment.
fn take(slot: &MapSlot) -> bool {
    // Acquire pairs with the Release in `TouchableMap::drop`.
    let taken = (slot.state).compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed);
    taken.is_ok()
}

impl Drop for TouchableMap {
    fn drop(&mut self) {
        let slot = self.slot();
        slot.state.fetch_and(!LIVE, Ordering::Relaxed);
        self.block.ends[self.at].store(0, Ordering::Relaxed);
        MAPS.fetch_sub(1, Ordering::Relaxed);
        // Acquire pairs with the Release in `leave`. A handler is there for the time of a page's
        // clearing at most.
        while slot.state.load(Ordering::Acquire) & HANDLERS != 0 {
            if self.is_parents() {
                // Those of the parent's threads never leave, here: the slot is not used again.
                return;
            }
            std::thread::yield_now();
        }
        // Release pairs with the Acquire in `take`.
        slot.state.fetch_and(!TAKEN, Ordering::Release);
    }
}
