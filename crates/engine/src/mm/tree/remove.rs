//! Taking a VMA out.

use super::{Changes, MAX_LEVELS, Tree, Walk};

impl<const FANOUT: usize> Tree<FANOUT> {
    /// Takes out the VMA that starts at `start`. The caller holds `mmap_lock`
    /// for write. Needs no memory.
    ///
    /// Each of its steps leaves a tree with the same VMAs, so a reader may come
    /// between any two.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&self, start: usize, walk: &mut Walk) -> u32 {
        let path = self.path(start, walk);
        let mut index = path.leaf();
        let leaf = self.node(index);
        let at = leaf.last_at_or_below(start);
        let at = at.filter(|&at| leaf.key(at) == start);
        let at = at.expect("no VMA starts there");
        let vma = leaf.value(at);

        let mut changes = Changes::new();
        let mut empty = [0; MAX_LEVELS];
        let mut count = 0;
        let mut parents = path.parents().peekable();
        changes.open(leaf).remove(at);
        while self.node(index).count() == 0
            && let Some((parent, slot)) = parents.next()
        {
            changes.open(self.node(parent)).remove(slot);
            self.node(index).reshape(0, 0);
            (empty[count], count) = (index, count + 1);
            index = parent;
        }
        // The only child of a root has gone.
        if self.node(index).count() == 0 {
            self.node(index).reshape(0, 0);
        }
        // Readers see that nodes have left the tree before others may have them.
        drop(changes);
        for &node in &empty[..count] {
            self.nodes.free(node);
        }

        for (parent, slot) in parents {
            if !self.join(parent, slot) {
                break;
            }
        }
        self.pull_up(path.root());
        self.set_len(self.len() - 1);
        vma
    }

    /// Joins a child that has lost entries with its neighbours, as long as both
    /// fit half a node. True if it did.
    fn join(&self, parent: u32, mut at: usize) -> bool {
        let count = self.node(parent).count();
        while at > 0 && self.fit_one(parent, at - 1) {
            at -= 1;
            self.join_two(parent, at);
        }
        while self.fit_one(parent, at) {
            self.join_two(parent, at);
        }
        self.node(parent).count() < count
    }

    /// True if a node has a child `at` and one behind it, and both fit half a
    /// node. Where verbs share the tree this is false: only empty nodes leave.
    fn fit_one(&self, parent: u32, at: usize) -> bool {
        let parent = self.node(parent);
        let count = |at| self.node(parent.value(at)).count();
        !self.is_shared() && at + 1 < parent.count() && count(at) + count(at + 1) <= FANOUT / 2
    }

    /// Joins child `at` of a node and the one behind it. Above the leaves two
    /// of their own children become neighbours by that, and are joined too if
    /// they fit.
    fn join_two(&self, mut parent: u32, mut at: usize) {
        loop {
            let node = self.node(parent);
            let (kept, gone) = (node.value(at), node.value(at + 1));
            let (left, right) = (self.node(kept), self.node(gone));
            let met = left.count();
            let mut changes = Changes::new();
            for node in [node, left, right] {
                changes.open(node);
            }
            // Above the leaves the first key may be stale; the parent knows.
            if right.level() > 0 {
                right.set(0, node.key(at + 1), right.value(0));
            }
            right.move_tail(0, left);
            node.remove(at + 1);
            right.reshape(0, 0);
            drop(changes);
            self.nodes.free(gone);
            if left.level() == 0 || !self.fit_one(kept, met - 1) {
                return;
            }
            (parent, at) = (kept, met - 1);
        }
    }

    /// While the root has only one child, puts the child's entries in its
    /// place.
    fn pull_up(&self, root: u32) {
        let root = self.node(root);
        while root.level() > 0 && root.count() == 1 {
            let child = root.value(0);
            let node = self.node(child);
            let mut changes = Changes::new();
            changes.open(root).reshape(node.level(), 0);
            changes.open(node).move_tail(0, root);
            node.reshape(0, 0);
            drop(changes);
            self.nodes.free(child);
        }
    }
}
