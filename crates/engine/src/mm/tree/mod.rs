//! The tree that finds VMAs: a B+-tree keyed by start address, read without
//! any lock.
//!
//! ```text
//!            [ -∞ → A | 0x7f00.. → B ]                inner node
//!               /                  \
//!   A [ 0x1000 → vma 7 | .. ]    B [ 0x7f00.. → vma 3 | .. ]     leaves
//! ```
//!
//! Ownership: a tree owns its nodes, which come from a slab that many
//! trees share. It does not own the VMAs: their indices are numbers to it, and
//! whether the VMA that a lookup answers is still the right one is found out
//! under its lock ([`vma_lock`](super::vma_lock)).
//!
//! Lock rules: `insert`, `remove` and `rekey` are called with `mmap_lock`
//! held for write. Where verbs share it, they change the tree by `leaf.rs`.
//! The lookups may be called with any lock or none. Without
//! one they answer [`Contended`] after a few restarts; under `mmap_lock` there
//! is no writer, and no restart.
//!
//! How a reader goes down (optimistic lock coupling, after Leis et al., 2016):
//! it reads a node's version, then the entry it wants, then the *child's*
//! version, and then looks at the node's version again. If that has not
//! changed, the child was the right one when its version was read, and the
//! child's own version guards the next step. A writer keeps the versions of
//! all the nodes that it changes odd until all are changed.
//!
//! It stays shallow: a remove joins two neighbours under one parent as
//! soon as both fit half a node, and takes an empty node out in any case. So
//! two neighbours always have more than `FANOUT / 2` entries together, so a
//! pair of neighbours has at least `FANOUT / 4` pairs of neighbours below it,
//! so with n VMAs there are at most 2 + log(n) levels, to the base 5 for the
//! product's fanout of 20.
//!
//! The root stays the same node for the life of the tree: when it is full its
//! entries move down into two new nodes, and when a single child is left the
//! child's entries move up (not by verbs that share the tree).
//!
//! Where verbs share it, each part of the address space ([`Parts`]) has a root, and
//! the leaves of all parts are in one order. No leaf but a root is ever empty.

mod find;
mod insert;
mod leaf;
mod node;
mod parts;
mod rekey;
mod remove;
mod walk;

pub use find::Contended;
pub use insert::Spare;
pub use leaf::{LeafLockError, LockedLeaf};
pub use node::{FANOUT, Node};
pub use parts::Parts;

use sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};

use crate::slab::Slab;
use node::Changes;

/// More levels than 2^32 VMAs can need.
const MAX_LEVELS: usize = 16;

/// A VMA as the tree knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its start address when it was entered.
    pub start: usize,
    /// Its index in the slab of VMAs.
    pub vma: u32,
}

/// The cost of one operation, or of many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walk {
    /// Nodes looked at.
    pub visits: u64,
    /// Times a lookup met a writer and began again.
    pub restarts: u64,
}

/// The slab has no node left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoNodes;

/// The tree of one space. `FANOUT` is a parameter so that a model checker can
/// make it small.
pub struct Tree<const FANOUT: usize = { node::FANOUT }> {
    /// Where nodes come from; immutable.
    nodes: Arc<Slab<Node<FANOUT>>>,
    /// Where the parts of the address space begin; immutable.
    parts: Parts,
    /// The root of each part; immutable.
    roots: Box<[u32]>,
    /// How often a lookup without a lock begins again; immutable.
    most_restarts: u32,
    /// Entries in the tree; written under `mmap_lock`, for write or shared.
    len: Len,
}

/// On another line than the fields that every lookup reads.
#[repr(align(64))]
struct Len(AtomicUsize);

impl<const FANOUT: usize> Tree<FANOUT> {
    /// An empty tree.
    pub fn new(nodes: Arc<Slab<Node<FANOUT>>>) -> Result<Self, NoNodes> {
        Self::with_parts(nodes, Parts::ONE, find::MOST_RESTARTS)
    }

    /// The same, in which verbs change leaves beside one another, those of different parts without a node in common. Nodes are
    /// joined only when one of them is empty: where VMAs come and go all the time, each join and each split would have to
    /// wait for all of them.
    pub fn shared(nodes: Arc<Slab<Node<FANOUT>>>, parts: Parts) -> Result<Self, NoNodes> {
        Self::with_parts(nodes, parts, find::MOST_RESTARTS_SHARED)
    }

    fn with_parts(
        nodes: Arc<Slab<Node<FANOUT>>>,
        parts: Parts,
        most_restarts: u32,
    ) -> Result<Self, NoNodes> {
        assert!(FANOUT >= 2);
        let mut roots = Vec::with_capacity(parts.count());
        for _ in 0..parts.count() {
            let Some(root) = nodes.alloc() else {
                roots.into_iter().for_each(|root| nodes.free(root));
                return Err(NoNodes);
            };
            Changes::new().open(nodes.get(root)).reshape(0, 0);
            roots.push(root);
        }
        Ok(Self {
            nodes,
            parts,
            roots: roots.into(),
            most_restarts,
            len: Len(AtomicUsize::new(0)),
        })
    }

    /// The root of the part that has `key`.
    fn root(&self, key: usize) -> u32 {
        self.roots[self.parts.of(key)]
    }

    /// True if verbs may change leaves beside one another.
    fn is_shared(&self) -> bool {
        self.most_restarts == find::MOST_RESTARTS_SHARED
    }

    /// How many VMAs it has.
    pub fn len(&self) -> usize {
        // Relaxed: exact under mmap_lock, a hint otherwise.
        self.len.0.load(Ordering::Relaxed)
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn node(&self, index: u32) -> &Node<FANOUT> {
        self.nodes.get(index)
    }

    fn set_len(&self, len: usize) {
        self.len.0.store(len, Ordering::Relaxed);
    }

    /// By one of several writers.
    fn add_len(&self, more: isize) {
        self.len.0.fetch_add(more as usize, Ordering::Relaxed);
    }

    /// The nodes from the root to the leaf for `key`. For writers.
    fn path(&self, key: usize, walk: &mut Walk) -> Path {
        let mut path = Path::at_root(self.root(key));
        loop {
            walk.visits += 1;
            let node = self.node(path.leaf());
            if node.level() == 0 {
                return path;
            }
            let slot = node.child_slot(key);
            path.push(slot, node.value(slot));
        }
    }
}

impl<const FANOUT: usize> Drop for Tree<FANOUT> {
    fn drop(&mut self) {
        let left = self.len();
        assert!(left == 0, "dropped with {left} VMAs: exit() comes first");
        self.roots.iter().for_each(|&root| self.nodes.free(root));
    }
}

/// The way from the root to a leaf.
struct Path {
    /// Nodes, the root first; and for all but the last the entry that the
    /// next one hangs on.
    steps: [(u32, usize); MAX_LEVELS],
    depth: usize,
}

impl Path {
    fn at_root(root: u32) -> Self {
        let mut steps = [(0, 0); MAX_LEVELS];
        steps[0].0 = root;
        Self { steps, depth: 1 }
    }

    /// One without nodes.
    fn new() -> Self {
        Self {
            steps: [(0, 0); MAX_LEVELS],
            depth: 0,
        }
    }

    /// Adds a node, whose entry in the one above is not known.
    fn visit(&mut self, node: u32) {
        assert!(self.depth < MAX_LEVELS, "the tree is deeper than it can be");
        self.steps[self.depth].0 = node;
        self.depth += 1;
    }

    /// Forgets the first `count` nodes.
    fn cut(&mut self, count: usize) {
        self.steps.copy_within(count..self.depth, 0);
        self.depth -= count;
    }

    fn push(&mut self, slot: usize, child: u32) {
        assert!(self.depth < MAX_LEVELS, "the tree is deeper than it can be");
        self.steps[self.depth - 1].1 = slot;
        self.steps[self.depth].0 = child;
        self.depth += 1;
    }

    fn root(&self) -> u32 {
        self.steps[0].0
    }

    fn leaf(&self) -> u32 {
        self.steps[self.depth - 1].0
    }

    /// The nodes and their slots, from the leaf's parent to the root.
    fn parents(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        self.steps[..self.depth - 1].iter().rev().copied()
    }
}
