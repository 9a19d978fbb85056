//! Lookups, with or without a lock.

use sync::hint;

use super::{Entry, Node, Tree, Walk};

/// How often a lookup begins again before it gives up.
pub(super) const MOST_RESTARTS: u32 = 4;
/// The same where verbs share the tree: a leaf is changed often, for a moment, and all verbs would wait for a lookup
/// that goes by `mmap_lock`.
pub(super) const MOST_RESTARTS_SHARED: u32 = 512;

/// Writers kept changing the nodes of the lookup: take `mmap_lock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contended;

/// A node had changed, or was just being changed.
pub(super) struct Changed;

/// A leaf and the version it was reached at.
pub(super) struct LeafNode<'a, const FANOUT: usize> {
    pub(super) node: &'a Node<FANOUT>,
    pub(super) version: u64,
    /// The leaf has all the tree's keys from here on ..
    pub(super) lower: usize,
    /// .. to here, where the next leaf begins, if there is one.
    pub(super) upper: Option<usize>,
}

impl<const FANOUT: usize> LeafNode<'_, FANOUT> {
    fn check(&self) -> Result<(), Changed> {
        check(self.node.unchanged(self.version))
    }

    fn entry(&self, at: Option<usize>) -> Option<Entry> {
        at.map(|at| Entry {
            start: self.node.key(at),
            vma: self.node.value(at),
        })
    }
}

fn check(unchanged: bool) -> Result<(), Changed> {
    if unchanged { Ok(()) } else { Err(Changed) }
}

impl<const FANOUT: usize> Tree<FANOUT> {
    /// The last VMA that starts at or below `address`: the only one that can
    /// hold it. Whether it reaches that far is for the caller to see. Exact at
    /// one moment during the call. Over empty parts, each of them was at one: a VMA that stays as it is and has `address` is found.
    pub fn floor(&self, address: usize, walk: &mut Walk) -> Result<Option<Entry>, Contended> {
        self.persist(walk, |walk| self.try_floor(address, walk))
    }

    /// The first VMA that starts at or above `address`. Exact at one moment
    /// during the call; over parts, for each of them at one.
    pub fn ceiling(&self, address: usize, walk: &mut Walk) -> Result<Option<Entry>, Contended> {
        self.persist(walk, |walk| self.try_ceiling(address, walk))
    }

    fn try_floor(&self, address: usize, walk: &mut Walk) -> Result<Option<Entry>, Changed> {
        let mut leaf = self.descend(address, walk)?;
        let mut found = leaf.entry(leaf.node.last_at_or_below(address));
        // Every key of the leaf is above: the one sought is the last of the
        // leaf before. If this leaf has not changed when that one was read,
        // nothing came between. That one may be this leaf again, which begins lower since a neighbour
        // has gone, or the empty root of a part.
        while found.is_none() && leaf.lower > 0 {
            let before = self.descend(leaf.lower - 1, walk)?;
            found = before.entry(before.node.last_at_or_below(leaf.lower - 1));
            before.check()?;
            leaf.check()?;
            leaf = before;
        }
        leaf.check()?;
        Ok(found)
    }

    fn try_ceiling(&self, address: usize, walk: &mut Walk) -> Result<Option<Entry>, Changed> {
        let mut leaf = self.descend(address, walk)?;
        let mut found = leaf.entry(leaf.node.first_at_or_above(address));
        // As in `try_floor`.
        while found.is_none()
            && let Some(upper) = leaf.upper
        {
            let behind = self.descend(upper, walk)?;
            found = behind.entry(behind.node.first_at_or_above(upper));
            behind.check()?;
            leaf.check()?;
            leaf = behind;
        }
        leaf.check()?;
        Ok(found)
    }

    /// Goes down to the leaf for `key`.
    fn descend(&self, key: usize, walk: &mut Walk) -> Result<LeafNode<'_, FANOUT>, Changed> {
        self.descend_by(key, walk, |_| ())
    }

    /// The same, and tells the nodes on the way, the root first.
    #[inline]
    pub(super) fn descend_by(
        &self,
        key: usize,
        walk: &mut Walk,
        mut visit: impl FnMut(u32),
    ) -> Result<LeafNode<'_, FANOUT>, Changed> {
        let part = self.parts.of(key);
        let root = self.roots[part];
        let mut node = self.node(root);
        let mut version = self.begin(node)?;
        visit(root);
        let (mut lower, mut upper) = self.parts.bounds(part);
        let mut level = None;
        loop {
            walk.visits += 1;
            let depth = node.level();
            // Levels only sink, so that even nonsense ends.
            check(level.is_none_or(|above| depth + 1 == above))?;
            level = Some(depth);
            if depth == 0 {
                return Ok(LeafNode {
                    node,
                    version,
                    lower,
                    upper,
                });
            }
            let slot = node.child_slot(key);
            if slot > 0 {
                lower = node.key(slot);
            }
            if slot + 1 < node.count() {
                upper = Some(node.key(slot + 1));
            }
            let child = node.value(slot);
            // Only now is `child` known to be an index of a node ..
            check(node.unchanged(version))?;
            let below = self.node(child);
            let below_version = self.begin(below)?;
            // .. and only now is that node known to have been the child when
            // its version was read, and not to have come back as another.
            check(node.unchanged(version))?;
            visit(child);
            (node, version) = (below, below_version);
        }
    }

    /// The version of a node. Where verbs share the tree, one that is being changed is waited for, for a while: verbs have nodes for a
    /// moment, but one after the other, so that attempts are soon used up.
    fn begin(&self, node: &Node<FANOUT>) -> Result<u64, Changed> {
        let mut version = node.begin();
        if version.is_none() && self.most_restarts == MOST_RESTARTS_SHARED {
            hint::spin_until(|| {
                version = node.begin();
                version.is_some()
            });
        }
        version.ok_or(Changed)
    }

    /// Tries, a few times.
    fn persist<T>(
        &self,
        walk: &mut Walk,
        mut attempt: impl FnMut(&mut Walk) -> Result<T, Changed>,
    ) -> Result<T, Contended> {
        for _ in 0..=self.most_restarts {
            match attempt(walk) {
                Ok(found) => return Ok(found),
                Err(Changed) => walk.restarts += 1,
            }
            sync::hint::spin_loop();
        }
        Err(Contended)
    }
}
