//! Changes beside changes of others: with [`shared`](crate::mm::shared) alone.
//!
//! A verb takes the leaf that has its key by making its version odd with a compare-and-swap; from then on the leaf is the verb's,
//! until the version is even again. Lookups without a lock see this as any other change. The swap is from the version at which
//! the leaf was found, so it fails if the leaf was changed since, or has gone, or has come back as another.
//!
//! **A leaf that is full, or loses its last VMA**, needs its parent too; a parent that is full needs its own, and so on:
//!
//! ```text
//!   split                                       leave
//!   l1  take the leaf                           l1  take the leaf
//!   l2  take nodes above, as far as they are    l2  take the parent; it has other children
//!       full, and the first that is not         l3  the leaf's entry out of the parent, the leaf empty
//!   l3  new nodes beside the full ones          l4  let both go
//!   l4  let all go                              l5  free the leaf
//! ```
//!
//! Order: upwards. A thread that has a node takes none below it but new ones, so nobody waits in a circle.
//!
//! **Nodes above the leaves stay** while verbs share `mmap_lock`: none of them leaves the tree. But they split, and the root moves
//! its entries down. So the nodes on the way to a leaf may be wrong by the time that they are taken: a verb looks for its leaf in
//! the parent, and begins again if it is not there (`Moved`).
//!
//! **The bounds** of a taken leaf are those at which it was found. They can only be wider by now: a neighbour that has gone leaves
//! its range to the leaf. To make them narrower takes the leaf itself.
//!
//! No leaf but a root is ever empty when others can see it, so there are no more other leaves than VMAs; but neighbours with few
//! entries stay apart ([`Tree::shared`]), and a tree that was large once keeps its height until its leaves are empty. A root
//! may have a single child.

use sync::hint;

use super::node::Changes;
use super::{Entry, Node, Path, Spare, Tree, Walk};

/// A leaf that this thread alone may change.
pub struct LockedLeaf<'a, const FANOUT: usize = { super::FANOUT }> {
    tree: &'a Tree<FANOUT>,
    /// The way to the leaf: from the root as it was found, or only nodes that are taken too.
    path: Path,
    /// The nodes that are taken.
    changes: Changes<'a, FANOUT>,
    /// The leaf has all the tree's keys from here on ..
    pub lower: usize,
    /// .. to here, where the next leaf begins, if there is one.
    pub upper: Option<usize>,
}

/// Why a leaf cannot be changed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafLockError {
    /// Nodes above it have split. Take it again.
    Moved,
    /// As many spare nodes are needed.
    Nodes(usize),
    /// It takes `mmap_lock` for write: the leaf has no neighbour under its parent.
    Alone,
}

impl<const FANOUT: usize> Tree<FANOUT> {
    /// Takes the leaf that has `key`. The caller shares `mmap_lock`, and has no other leaf.
    pub fn lock_leaf(&self, key: usize, walk: &mut Walk) -> LockedLeaf<'_, FANOUT> {
        let mut leaf = None;
        let mut try_lock = || {
            leaf = self.try_lock_leaf(key, walk);
            leaf.is_some()
        };
        while !(try_lock() || hint::spin_until(&mut try_lock)) {
            sync::thread::yield_now();
        }
        leaf.expect("taken just now")
    }

    fn try_lock_leaf(&self, key: usize, walk: &mut Walk) -> Option<LockedLeaf<'_, FANOUT>> {
        let mut path = Path::new();
        let leaf = self.descend_by(key, walk, |node| path.visit(node)).ok()?;
        let mut changes = Changes::new();
        changes
            .try_take(leaf.node, leaf.version)
            .then_some(LockedLeaf {
                tree: self,
                path,
                changes,
                lower: leaf.lower,
                upper: leaf.upper,
            })
    }
}

impl<'a, const FANOUT: usize> LockedLeaf<'a, FANOUT> {
    /// The last VMA of the leaf that starts at or below `address`.
    pub fn floor(&self, address: usize) -> Option<Entry> {
        self.entry(self.node().last_at_or_below(address))
    }

    /// The first VMA of the leaf that starts at or above `address`.
    pub fn ceiling(&self, address: usize) -> Option<Entry> {
        self.entry(self.node().first_at_or_above(address))
    }

    fn entry(&self, at: Option<usize>) -> Option<Entry> {
        at.map(|at| Entry {
            start: self.node().key(at),
            vma: self.node().value(at),
        })
    }

    fn node(&self) -> &'a Node<FANOUT> {
        self.tree.node(self.path.leaf())
    }

    /// Takes all nodes that one more VMA changes. After an error take the leaf again.
    pub fn make_room(&mut self, spare: &Spare) -> Result<(), LeafLockError> {
        let mut top = self.path.depth - 1;
        while top > 0 && self.tree.node(self.path.steps[top].0).count() == FANOUT {
            top -= 1;
            self.take_above(top)?;
        }
        self.path.cut(top);
        let nodes = self.tree.nodes_to_split(&self.path);
        match nodes <= spare.count() {
            true => Ok(()),
            false => Err(LeafLockError::Nodes(nodes)),
        }
    }

    /// Takes all nodes that one VMA less changes. After an error take the leaf again.
    pub fn make_way(&mut self) -> Result<(), LeafLockError> {
        let leaf = self.path.depth - 1;
        if leaf == 0 || self.node().count() > 1 {
            self.path.cut(leaf);
            return Ok(());
        }
        let parent = self.tree.node(self.path.steps[leaf - 1].0);
        // Before it is taken, a guess: lookups do not begin again for nothing.
        if parent.count() < 2 {
            return Err(LeafLockError::Alone);
        }
        self.take_above(leaf - 1)?;
        if parent.count() < 2 {
            return Err(LeafLockError::Alone);
        }
        self.path.cut(leaf - 1);
        Ok(())
    }

    /// Takes a node of the path whose child is taken, if it still is its child.
    fn take_above(&mut self, at: usize) -> Result<(), LeafLockError> {
        let node = self.tree.node(self.path.steps[at].0);
        let child = self.path.steps[at + 1].0;
        self.changes.take(node);
        let slot = (0..node.count()).find(|&slot| node.value(slot) == child);
        self.path.steps[at].1 = slot.ok_or(LeafLockError::Moved)?;
        Ok(())
    }

    /// Enters a VMA. There is room, and none that starts at `start`.
    pub fn insert(mut self, start: usize, vma: u32, spare: &mut Spare) {
        assert!(self.changes.count() == self.path.depth, "room comes first");
        let (tree, path) = (self.tree, self.path);
        let split = tree.nodes_to_split(&path);
        tree.insert_at((path, split), (start, vma), spare, &mut self.changes);
        tree.add_len(1);
    }

    /// Takes out the VMA that starts at `start`. There is a way.
    pub fn remove(self, start: usize) {
        assert!(self.changes.count() == self.path.depth, "a way comes first");
        let (tree, leaf) = (self.tree, self.node());
        let at = leaf.last_at_or_below(start);
        let at = at.filter(|&at| leaf.key(at) == start);
        leaf.remove(at.expect("no VMA starts there"));
        tree.add_len(-1);
        let goes = self.path.parents().next();
        if let Some((parent, slot)) = goes {
            tree.node(parent).remove(slot);
        }
        let index = self.path.leaf();
        // Others see that it has left the tree before it can be theirs.
        drop(self.changes);
        if goes.is_some() {
            tree.nodes.free(index);
        }
    }
}
