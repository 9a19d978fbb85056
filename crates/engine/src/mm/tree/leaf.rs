//! Changes of one leaf, beside changes of others: with [`shared`](crate::mm::shared) alone.
//!
//! While verbs share `mmap_lock`, no node above the leaves changes, and none comes or goes. A verb takes the leaf that has its
//! key by making its version odd with a compare-and-swap; from then on the leaf is the verb's, until the version is even
//! again. Lookups without a lock see this as any other change.
//!
//! What takes more than one leaf is not for here: a leaf that is full, or would be empty. No leaf is ever empty, so there are
//! no more leaves than VMAs; but neighbours with few entries stay apart ([`Tree::shared`]), and a tree that was large once keeps
//! its height until its leaves are empty.

use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::atomic::fence;
use sync::hint;

use super::{Entry, Node, Tree, Walk};

/// A leaf that this thread alone may change.
pub struct LockedLeaf<'a, const FANOUT: usize = { super::FANOUT }> {
    tree: &'a Tree<FANOUT>,
    node: &'a Node<FANOUT>,
    is_root: bool,
    /// The leaf has all the tree's keys from here on ..
    pub lower: usize,
    /// .. to here, where the next leaf begins, if there is one.
    pub upper: Option<usize>,
}

impl<const FANOUT: usize> Tree<FANOUT> {
    /// Takes the leaf that has `key`. The caller shares `mmap_lock`, and has no other leaf.
    pub fn lock_leaf(&self, key: usize, walk: &mut Walk) -> LockedLeaf<'_, FANOUT> {
        let mut node = self.node(self.root);
        let (mut lower, mut upper) = (0, None);
        let mut is_root = true;
        while node.level() > 0 {
            walk.visits += 1;
            let slot = node.child_slot(key);
            if slot > 0 {
                lower = node.key(slot);
            }
            if slot + 1 < node.count() {
                upper = Some(node.key(slot + 1));
            }
            node = self.node(node.value(slot));
            is_root = false;
        }
        node.lock();
        LockedLeaf {
            tree: self,
            node,
            is_root,
            lower,
            upper,
        }
    }
}

impl<const FANOUT: usize> LockedLeaf<'_, FANOUT> {
    /// The last VMA of the leaf that starts at or below `address`.
    pub fn floor(&self, address: usize) -> Option<Entry> {
        self.entry(self.node.last_at_or_below(address))
    }

    /// The first VMA of the leaf that starts at or above `address`.
    pub fn ceiling(&self, address: usize) -> Option<Entry> {
        self.entry(self.node.first_at_or_above(address))
    }

    fn entry(&self, at: Option<usize>) -> Option<Entry> {
        at.map(|at| Entry {
            start: self.node.key(at),
            vma: self.node.value(at),
        })
    }

    /// True if one more VMA has room.
    pub fn has_room(&self) -> bool {
        self.node.count() < FANOUT
    }

    /// True if one may go without others having to move.
    pub fn can_lose_one(&self) -> bool {
        self.is_root || self.node.count() > 1
    }

    /// Enters a VMA. There is room, and none that starts at `start`.
    pub fn insert(&self, start: usize, vma: u32) {
        let at = self.node.last_at_or_below(start);
        assert!(
            at.is_none_or(|at| self.node.key(at) != start),
            "a VMA starts at {start:#x} already"
        );
        self.node.insert(at.map_or(0, |at| at + 1), start, vma);
        self.tree.add_len(1);
    }

    /// Takes out the VMA that starts at `start`.
    pub fn remove(&self, start: usize) {
        assert!(self.can_lose_one());
        let at = self.node.last_at_or_below(start);
        let at = at.filter(|&at| self.node.key(at) == start);
        self.node.remove(at.expect("no VMA starts there"));
        self.tree.add_len(-1);
    }
}

impl<const FANOUT: usize> Drop for LockedLeaf<'_, FANOUT> {
    fn drop(&mut self) {
        self.node.unlock();
    }
}

impl<const FANOUT: usize> Node<FANOUT> {
    /// Begins a change as one of several writers.
    fn lock(&self) {
        let try_lock = || {
            let version = self.version.load(Relaxed);
            // Acquire pairs with the Release in `unlock`, and in `end_change`: this change is made to what that one left.
            version.is_multiple_of(2)
                && (self.version)
                    .compare_exchange(version, version + 1, Acquire, Relaxed)
                    .is_ok()
        };
        while !(try_lock() || hint::spin_until(try_lock)) {
            sync::thread::yield_now();
        }
        // Pairs with the Acquire fence in `unchanged`.
        fence(Release);
    }

    /// Ends it.
    fn unlock(&self) {
        // Relaxed: this thread made it odd.
        let version = self.version.load(Relaxed);
        // Release pairs with the Acquire in `begin`, and in `lock`.
        self.version.store(version + 1, Release);
    }
}
