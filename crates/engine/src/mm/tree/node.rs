//! One node of the tree, and the version that tells a reader whether its read was
//! consistent.
//!
//! A node is type-stable: it comes from a slab and is always a node, in this
//! tree or in another space's. Everything in it is an atomic, so a reader may
//! look at it at any moment. Its reads mean something only after
//! [`Node::unchanged`] has said so.
//!
//! Lock rules: nodes are changed only inside a [`Changes`]: by the holder of
//! `mmap_lock` of the tree's space for write, or by verbs that share it, which
//! take each node by its version (`leaf.rs`). Readers hold nothing.

use sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use crate::slab::TypeStable;

/// Entries of a node of the product's tree: the most that fit four cache
/// lines.
pub const FANOUT: usize = 20;

/// A node: up to `FANOUT` entries, sorted by key. In a leaf an entry is the
/// start of a VMA and its index in the slab; above, it is the lower bound of a
/// child's keys and the child's index. The first entry above the leaves takes
/// everything below the second one: its key is not looked at.
#[repr(C, align(64))]
pub struct Node<const FANOUT: usize> {
    /// Odd while the node is being changed. Counts on through every reuse, so
    /// that a reused node is never taken for its earlier self.
    /// Protected by `mmap_lock` of the space that has the node; a verb that shares it takes the node by making this odd.
    pub(super) version: AtomicU64,
    /// Protected by `version`: keys, sorted, of which the first `count` hold.
    keys: [AtomicUsize; FANOUT],
    /// Protected by `version`: the level (0 is a leaf) above 16 bits of count.
    shape: AtomicU32,
    /// Protected by `version`: the value of each key.
    values: [AtomicU32; FANOUT],
}

impl<const FANOUT: usize> Node<FANOUT> {
    /// The version to validate with later, or `None` while the node is being
    /// changed.
    pub(super) fn begin(&self) -> Option<u64> {
        // Acquire pairs with the Release in `end_change`: the stores of that
        // change, here and in the nodes changed with it, are seen from now on.
        let version = self.version.load(Ordering::Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    /// True if nothing that was read since [`begin`](Self::begin) answered
    /// `version` was in the middle of a change, or newer than `version`.
    pub(super) fn unchanged(&self, version: u64) -> bool {
        // Pairs with the Release fence in `begin_change`: if one of our reads saw a
        // store of a later change, the load below sees that change's version.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// Starts a change. The caller holds `mmap_lock` for write; a verb that shares it takes the node by [`Changes`].
    fn begin_change(&self) {
        // Relaxed: only the holder of mmap_lock writes it, and the slab orders
        // a former owner's stores before ours.
        let version = self.version.load(Ordering::Relaxed);
        assert!(
            version.is_multiple_of(2),
            "two writers in one tree: mmap_lock was not held for write"
        );
        self.version.store(version + 1, Ordering::Relaxed);
        // Pairs with the Acquire fence in `unchanged`.
        fence(Ordering::Release);
    }

    /// Ends a change.
    fn end_change(&self) {
        let version = self.version.load(Ordering::Relaxed);
        // Release pairs with the Acquire in `begin`.
        self.version.store(version + 1, Ordering::Release);
    }

    // The reads below are Relaxed: `unchanged` orders them for a reader, and
    // mmap_lock for a writer.

    /// Levels below this node: 0 for a leaf.
    pub(super) fn level(&self) -> usize {
        (self.shape.load(Ordering::Relaxed) >> 16) as usize
    }

    /// How many entries hold; never more than there are.
    pub(super) fn count(&self) -> usize {
        let count = (self.shape.load(Ordering::Relaxed) & 0xffff) as usize;
        count.min(FANOUT)
    }

    /// Key of entry `at`.
    pub(super) fn key(&self, at: usize) -> usize {
        self.keys[at].load(Ordering::Relaxed)
    }

    /// Value of entry `at`.
    pub(super) fn value(&self, at: usize) -> u32 {
        self.values[at].load(Ordering::Relaxed)
    }

    /// The last entry whose key is not above `key`.
    pub(super) fn last_at_or_below(&self, key: usize) -> Option<usize> {
        (0..self.count())
            .take_while(|&at| self.key(at) <= key)
            .last()
    }

    /// The first entry whose key is not below `key`.
    pub(super) fn first_at_or_above(&self, key: usize) -> Option<usize> {
        (0..self.count()).find(|&at| self.key(at) >= key)
    }

    /// The entry of an inner node whose child has `key`, if anyone has. The
    /// first entry's key may be stale, and out of order.
    pub(super) fn child_slot(&self, key: usize) -> usize {
        let below = |&at: &usize| self.key(at) <= key;
        (1..self.count()).take_while(below).last().unwrap_or(0)
    }
}

/// The part for writers. Every node is in a [`Changes`] meanwhile; the stores
/// are Relaxed because its fences order them.
impl<const FANOUT: usize> Node<FANOUT> {
    /// Sets level and count.
    pub(super) fn reshape(&self, level: usize, count: usize) {
        let version = self.version.load(Ordering::Relaxed);
        assert!(!version.is_multiple_of(2), "change without Changes::open");
        assert!(count <= FANOUT, "a tree node has no room for {count}");
        let shape = (level as u32) << 16 | count as u32;
        self.shape.store(shape, Ordering::Relaxed);
    }

    /// Sets entry `at`, and not the count.
    pub(super) fn set(&self, at: usize, key: usize, value: u32) {
        self.keys[at].store(key, Ordering::Relaxed);
        self.values[at].store(value, Ordering::Relaxed);
    }

    /// Puts an entry before entry `at`.
    pub(super) fn insert(&self, at: usize, key: usize, value: u32) {
        let count = self.count();
        self.reshape(self.level(), count + 1);
        for to in (at + 1..=count).rev() {
            self.set(to, self.key(to - 1), self.value(to - 1));
        }
        self.set(at, key, value);
    }

    /// Takes entry `at` out.
    pub(super) fn remove(&self, at: usize) {
        let count = self.count();
        for to in at + 1..count {
            self.set(to - 1, self.key(to), self.value(to));
        }
        self.reshape(self.level(), count - 1);
    }

    /// Moves the entries from `from` on behind the last entry of `target`,
    /// which is of the same level.
    pub(super) fn move_tail(&self, from: usize, target: &Self) {
        let (count, base) = (self.count(), target.count());
        target.reshape(self.level(), base + count - from);
        for at in from..count {
            target.set(base + at - from, self.key(at), self.value(at));
        }
        self.reshape(self.level(), from);
    }
}

impl<const FANOUT: usize> TypeStable for Node<FANOUT> {
    /// An empty leaf that belongs to no tree.
    fn new_slot(_index: u32) -> Self {
        Self {
            version: AtomicU64::new(0),
            keys: core::array::from_fn(|_| AtomicUsize::new(0)),
            shape: AtomicU32::new(0),
            values: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

/// One change of several nodes: their versions are odd until this is dropped, so
/// that readers see all of it or nothing.
pub(super) struct Changes<'a, const FANOUT: usize> {
    nodes: [Option<&'a Node<FANOUT>>; MOST_NODES],
    count: usize,
}

/// The most nodes of one change: per level one of the path and a new one beside it.
const MOST_NODES: usize = 2 * super::MAX_LEVELS;

impl<'a, const FANOUT: usize> Changes<'a, FANOUT> {
    /// No changes.
    pub(super) fn new() -> Self {
        Self {
            nodes: [None; MOST_NODES],
            count: 0,
        }
    }

    /// Starts to change `node`, unless this has been done.
    pub(super) fn open(&mut self, node: &'a Node<FANOUT>) -> &'a Node<FANOUT> {
        let open = self.nodes[..self.count].iter().flatten();
        if !open.copied().any(|open| core::ptr::eq(open, node)) {
            node.begin_change();
            self.nodes[self.count] = Some(node);
            self.count += 1;
        }
        node
    }

    /// Starts to change `node` as one of several writers, unless it has changed since it had this version.
    pub(super) fn try_take(&mut self, node: &'a Node<FANOUT>, version: u64) -> bool {
        // Acquire pairs with the Release in `end_change`: this change is made to what that one left.
        let taken = (node.version)
            .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if taken {
            // As in `begin_change`.
            fence(Ordering::Release);
            self.nodes[self.count] = Some(node);
            self.count += 1;
        }
        taken
    }

    /// The same for a node that stays in its tree: waits until no other changes it.
    pub(super) fn take(&mut self, node: &'a Node<FANOUT>) {
        let mut try_take = || {
            // Relaxed: the compare-and-swap has the Acquire.
            let version = node.version.load(Ordering::Relaxed);
            version.is_multiple_of(2) && self.try_take(node, version)
        };
        while !(try_take() || sync::hint::spin_until(&mut try_take)) {
            sync::thread::yield_now();
        }
    }

    /// How many nodes are being changed.
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

impl<const FANOUT: usize> Drop for Changes<'_, FANOUT> {
    fn drop(&mut self) {
        for node in self.nodes[..self.count].iter().flatten() {
            node.end_change();
        }
    }
}
