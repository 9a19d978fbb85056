//! The type-stable slab: slots that readers may look at after they were freed.
//!
//! A slot is made once and is then a `T` until the slab itself goes: it is
//! never dropped, moved, or given back to the system. So a holder of a
//! reference to one may still read its atomics after it was freed, and even
//! after it was handed out again for something else; that it is no longer the
//! thing that was looked for is for the reader to find out (`mm::lock_vma`).
//!
//! `alloc` and `free` take no lock where a free slot is to be had, and use no heap: the fault
//! handler may call them. Address space comes in chunks, each double the size of the one
//! before. Slots are made a group at a time, under a lock: the memory of a chunk is not filled
//! before it is needed, and by one thread. (All threads that found the last chunk used up made the
//! next one, whole: 32 of them stood still for 130 ms, and for that time had 32 times its memory.)
//!
//! Free slots form stacks. A head carries a tag that changes with every
//! operation, so that a slot which was popped and pushed again meanwhile (ABA)
//! makes the compare-and-swap fail. A tag comes round after 2^32 operations;
//! a thread would have to be preempted in `alloc` for all of them.
//!
//! A few processors share a stack: with one for all, 256 of them made each
//! other's compare-and-swap fail so often that a thrash came to a standstill.
//! A thread that finds its own stack empty looks at the others before a new slot is made. Not where the owner
//! has paid for more slots than were made ([`Slab::alloc_paid`]). Under a full budget most stacks are empty most of the time,
//! and 256 processors that looked for the few free slots waited for each other.
//! A slot goes back to the stack that it was taken from. With the stack of the freeing thread, all
//! processors took their folios from the few stacks of the threads that reclaim.

use core::ptr::{self, NonNull};

use sync::PROCESSORS;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use sync::pages;
use sync::stat::Counter;

use crate::PAGE_SIZE;
use crate::lock::Mutex;

/// A type whose values can live in a [`Slab`].
pub trait TypeStable: Send + Sync {
    /// A slot that was never used, with its index.
    fn new_slot(index: u32) -> Self;
}

/// Slots in the first chunk, as a shift. Few where the world is that of a model: loom looks at each word of each slot
/// that was made, and more chunks are made there.
const FIRST_SHIFT: u32 = if PROCESSORS < 8 { 2 } else { 6 };
/// Slots that are made at a time. No group is in two chunks.
const GROUP: u32 = 1 << FIRST_SHIFT;
/// Chunks enough for any `u32` index.
const CHUNKS: usize = (32 - FIRST_SHIFT + 1) as usize;

/// Stacks of free slots. Where the world has few processors there is one: it is
/// the stack that is modelled, and each is as the others.
const STACKS: usize = if PROCESSORS < 8 { 1 } else { PROCESSORS / 8 };

/// End of a stack of free slots.
const END: u32 = u32::MAX;
/// The link of a slot that was handed out from the first stack; from the others it is as many more.
const IN_USE: u32 = END - STACKS as u32;
/// Most slots a slab can have: the indices above mean something else.
const MAX_SLOTS: u32 = IN_USE;

/// A slab of `T`. Slots are named by a `u32` index.
#[derive(Debug)]
pub struct Slab<T: TypeStable> {
    /// Chunk `k` holds `1 << (FIRST_SHIFT + k)` slots (the last one as many as
    /// `max` leaves), and behind them as many links. Null until needed, then
    /// immutable.
    chunks: [AtomicPtr<T>; CHUNKS],
    /// Slots that were made: those below.
    made: AtomicU32,
    /// Held while slots are made.
    making: Mutex<()>,
    /// Slots handed out at least once: those below.
    fresh: AtomicU32,
    /// The stacks of free slots, by processor: [`STACKS`] of them.
    free: Box<[Stack]>,
    /// Immutable.
    max: u32,
    /// Bytes of all chunks.
    bytes: Counter,
}

/// The head of a stack of free slots, on another cache line than the fields that every reader loads.
#[derive(Debug)]
#[repr(align(64))]
struct Stack {
    /// Tag in the upper half, index of the top below.
    free: AtomicU64,
    /// Slots of it handed out that had been in use before. Here, since its line is written anyway: beside `fresh` the
    /// count took from all processors the line that every `get` reads.
    reuses: Counter,
}

impl Stack {
    fn empty() -> Self {
        Self {
            free: AtomicU64::new(END.into()),
            reuses: Counter::new(),
        }
    }
}

impl<T: TypeStable> Slab<T> {
    /// A slab of at most `max` slots. Costs nothing until the first `alloc`.
    pub fn new(max: u32) -> Self {
        assert!(
            max <= MAX_SLOTS,
            "a slab of {max} slots has no index for some"
        );
        const { assert!(align_of::<T>() <= PAGE_SIZE) };
        Self {
            chunks: core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            made: AtomicU32::new(0),
            making: Mutex::new(()),
            fresh: AtomicU32::new(0),
            free: (0..STACKS).map(|_| Stack::empty()).collect(),
            max,
            bytes: Counter::new(),
        }
    }

    /// Makes the first slots before they are needed: `alloc` may come where the system maps no more memory. False if it
    /// maps none now.
    pub fn prepare(&self) -> bool {
        self.max == 0 || self.make(0).is_some()
    }

    /// Hands out a slot: its index. It holds the state that its last user left in it.
    /// None when `max` are in use, or the system has no memory.
    pub fn alloc(&self) -> Option<u32> {
        self.alloc_paid(0)
    }

    /// The same. As many slots as are paid for may be made while others are free.
    pub fn alloc_paid(&self, paid: u32) -> Option<u32> {
        let own = sync::cpu() % self.free.len();
        let from_own = || self.pop(&self.free[own]);
        let from_others = || {
            let mut stacks = (1..STACKS).map(|other| &self.free[(own + other) % self.free.len()]);
            stacks.find_map(|stack| self.pop(stack))
        };
        // Relaxed: a bound, which others may pass at the same time.
        let is_paid = || paid > 0 && self.fresh.load(Relaxed) < paid;
        let new = || is_paid().then(|| self.first_use()).flatten();
        let index = from_own()
            .or_else(new)
            .or_else(from_others)
            .or_else(|| self.first_use())?;
        // The slot is ours alone; it is pushed again only later.
        self.link(index).store(IN_USE + own as u32, Relaxed);
        Some(index)
    }

    /// Takes a slot back. Readers that still hold a reference to it may go on
    /// reading; the next user of the slot must be prepared for them.
    pub fn free(&self, index: u32) {
        let link = self.link(index);
        // Relaxed: `alloc` stored it, and handed the slot to the caller.
        let in_use = link.load(Relaxed);
        let stack = self.free.get(in_use.wrapping_sub(IN_USE) as usize);
        let stack = stack.unwrap_or_else(|| panic!("slot {index} was freed twice"));
        let mut head = stack.free.load(Relaxed);
        let claimed = link.compare_exchange(in_use, head as u32, Relaxed, Relaxed);
        assert!(claimed.is_ok(), "slot {index} was freed twice");
        loop {
            // Release pairs with the Acquire in `pop`: it hands over the link
            // and all that was written to the slot.
            match stack
                .free
                .compare_exchange_weak(head, retag(head, index), Release, Relaxed)
            {
                Ok(_) => return,
                Err(now) => {
                    head = now;
                    link.store(head as u32, Relaxed);
                }
            }
        }
    }

    /// The slot. The index came from `alloc`, and reached the caller in a way
    /// that orders memory; it may have been freed since.
    #[inline]
    pub fn get(&self, index: u32) -> &T {
        self.try_get(index).expect("a slot that was handed out")
    }

    /// The slot, or None if it was never handed out.
    #[inline]
    pub fn try_get(&self, index: u32) -> Option<&T> {
        // Acquire pairs with the Release in `first_use`.
        if index >= self.fresh.load(Acquire) {
            return None;
        }
        let (chunk, offset) = place(index);
        // Relaxed: the Acquire above came after this chunk was put there.
        let base = self.chunks[chunk].load(Relaxed);
        // SAFETY: the chunk is mapped and its slots were all made before
        // `fresh` passed the first of them; none ever goes.
        Some(unsafe { &*base.add(offset) })
    }

    /// Slots that were ever handed out: all indices are below.
    pub fn len(&self) -> u32 {
        self.fresh.load(Acquire) // As in `try_get`.
    }

    /// True if no slot was ever handed out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that the slots take up.
    pub fn bytes(&self) -> usize {
        self.bytes.get() as usize
    }

    /// How many slots were handed out that had been in use before.
    pub fn reuses(&self) -> u64 {
        self.free.iter().map(|stack| stack.reuses.get()).sum()
    }

    /// How many slots are handed out, by counting the free ones. Exact while
    /// nobody allocates or frees.
    pub fn in_use(&self) -> u32 {
        let fresh = self.fresh.load(Acquire); // As in `try_get`.
        let mut free = 0;
        for stack in &self.free {
            // Acquire pairs with the Release in `free`. Of a stack that changes
            // meanwhile no more links are followed than there are slots.
            let mut next = stack.free.load(Acquire) as u32;
            while next < fresh && free < fresh {
                free += 1;
                next = self.link(next).load(Relaxed);
            }
        }
        fresh - free
    }

    fn pop(&self, stack: &Stack) -> Option<u32> {
        // Acquire pairs with the Release in `free`, here and on failure: the
        // link of the top is read next. It reaches past other pops, which are
        // read-modify-writes and so continue the release sequence.
        let mut head = stack.free.load(Acquire);
        loop {
            let top = head as u32;
            if top == END {
                return None;
            }
            // May be that of a slot which was popped meanwhile: then the tag
            // has changed.
            let next = self.link(top).load(Relaxed);
            match stack
                .free
                .compare_exchange_weak(head, retag(head, next), Acquire, Acquire)
            {
                Ok(_) => {
                    stack.reuses.add(1);
                    return Some(top);
                }
                Err(now) => head = now,
            }
        }
    }

    fn first_use(&self) -> Option<u32> {
        let mut index = self.fresh.load(Relaxed);
        loop {
            if index >= self.max {
                return None;
            }
            // Acquire pairs with the Release in `make`.
            if index >= self.made.load(Acquire) {
                self.make(index)?;
            }
            // Release pairs with the Acquire in `try_get`: the slot was made,
            // by this thread or another.
            match self
                .fresh
                .compare_exchange_weak(index, index + 1, Release, Relaxed)
            {
                Ok(_) => return Some(index),
                Err(now) => index = now,
            }
        }
    }

    /// Makes slot `index` and those of its group, unless somebody else has.
    fn make(&self, index: u32) -> Option<()> {
        let _making = self.making.lock();
        // Relaxed: it changes under the lock.
        let made = self.made.load(Relaxed);
        if index < made {
            return Some(());
        }
        let (chunk, _) = place(made);
        let (base, slots) = (self.chunk(chunk)?, self.slots_in(chunk));
        let end = made.saturating_add(GROUP).min(self.max);
        for index in made..end {
            let (_, offset) = place(index);
            // SAFETY: the mapping has room for all slots and links, aligned, and nobody
            // looks at one that was not made.
            unsafe {
                base.add(offset).write(T::new_slot(index));
                links::<T>(base, slots)
                    .add(offset)
                    .write(AtomicU32::new(IN_USE));
            }
        }
        // Release pairs with the Acquire in `first_use`: the slots are there.
        self.made.store(end, Release);
        Some(())
    }

    /// A chunk; maps it if it is not there. The caller holds `making`.
    fn chunk(&self, chunk: usize) -> Option<NonNull<T>> {
        // Relaxed: it changes under the lock.
        if let Some(base) = NonNull::new(self.chunks[chunk].load(Relaxed)) {
            return Some(base);
        }
        let bytes = chunk_bytes::<T>(self.slots_in(chunk));
        let base: NonNull<T> = pages::map(bytes)?.cast();
        // Relaxed: a thread that looks for a slot in it has seen `fresh` pass the slot.
        self.chunks[chunk].store(base.as_ptr(), Relaxed);
        self.bytes.add(bytes as u64);
        Some(base)
    }

    /// The link of a slot that was handed out at least once.
    fn link(&self, index: u32) -> &AtomicU32 {
        let (chunk, offset) = place(index);
        // Relaxed: as in `try_get`. The index comes from a thread that saw `fresh` pass it, or `made`.
        let base = NonNull::new(self.chunks[chunk].load(Relaxed));
        let base = base.expect("a slot that was handed out");
        let slots = self.slots_in(chunk);
        assert!(offset < slots, "slot {index} is past the end");
        // SAFETY: within the chunk's links, which were made before the chunk
        // was put there.
        unsafe { links(base, slots).add(offset).as_ref() }
    }

    fn slots_in(&self, chunk: usize) -> usize {
        let whole = 1_usize << (FIRST_SHIFT as usize + chunk);
        whole.min((self.max - first_of(chunk)) as usize)
    }
}

impl<T: TypeStable> Drop for Slab<T> {
    fn drop(&mut self) {
        for chunk in 0..CHUNKS {
            // Relaxed: `&mut self` is ordered after all other uses.
            if let Some(base) = NonNull::new(self.chunks[chunk].load(Relaxed)) {
                let made = self.made.load(Relaxed).saturating_sub(first_of(chunk));
                let slots = self.slots_in(chunk);
                // SAFETY: nobody borrows the slab any more.
                unsafe { drop_chunk(base, slots, slots.min(made as usize)) };
            }
        }
    }
}

/// Chunk of a slot, and its place there.
fn place(index: u32) -> (usize, usize) {
    let from_first = (index >> FIRST_SHIFT) + 1;
    let chunk = from_first.ilog2() as usize;
    (chunk, (index - first_of(chunk)) as usize)
}

/// Index of the first slot of a chunk.
fn first_of(chunk: usize) -> u32 {
    (((1_u64 << chunk) - 1) << FIRST_SHIFT) as u32
}

fn chunk_bytes<T>(slots: usize) -> usize {
    (slots * size_of::<T>() + size_of::<AtomicU32>())
        .next_multiple_of(align_of::<AtomicU32>())
        .checked_add(slots * size_of::<AtomicU32>())
        .expect("a chunk fits the address space")
        .next_multiple_of(PAGE_SIZE)
}

/// The links of a chunk with this many slots.
fn links<T>(base: NonNull<T>, slots: usize) -> NonNull<AtomicU32> {
    // SAFETY: the links lie behind the slots in the same mapping.
    let end = unsafe { base.add(slots).cast::<u8>() };
    let pad = end.align_offset(align_of::<AtomicU32>());
    // SAFETY: `chunk_bytes` has room for the padding.
    unsafe { end.add(pad).cast() }
}

/// Drops the slots of a chunk that were made, and their links, and gives its memory back.
///
/// # Safety
/// The chunk was mapped for this many slots, `made` of which were made, and nobody refers to it.
unsafe fn drop_chunk<T>(base: NonNull<T>, slots: usize, made: usize) {
    // SAFETY: the caller's promise; each slot and link that was made was written.
    unsafe {
        ptr::slice_from_raw_parts_mut(base.as_ptr(), made).drop_in_place();
        ptr::slice_from_raw_parts_mut(links(base, slots).as_ptr(), made).drop_in_place();
        pages::unmap(base.cast(), chunk_bytes::<T>(slots));
    }
}

/// A head with another top and the next tag.
fn retag(head: u64, top: u32) -> u64 {
    let tag = ((head >> 32) as u32).wrapping_add(1);
    u64::from(tag) << 32 | u64::from(top)
}
