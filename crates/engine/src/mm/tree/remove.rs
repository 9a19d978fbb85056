//! Taking a VMA out.

use super::{Changes, MAX_LEVELS, Node, Tree, Walk};

/// Nodes that left the tree: given back once readers can see that they did.
struct Retired {
    nodes: [u32; 2 * MAX_LEVELS],
    count: usize,
}

impl Retired {
    fn push(&mut self, node: u32) {
        self.nodes[self.count] = node;
        self.count += 1;
    }
}

impl<const FANOUT: usize> Tree<FANOUT> {
    /// Takes out the VMA that starts at `start`. The caller holds `mmap_lock`
    /// for write. Needs no memory.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&self, start: usize, walk: &mut Walk) -> u32 {
        let path = self.path(start, walk);
        let mut retired = Retired {
            nodes: [0; 2 * MAX_LEVELS],
            count: 0,
        };
        let mut changes = Changes::new();

        let mut index = path.leaf();
        let leaf = self.node(index);
        let at = leaf.last_at_or_below(start);
        let at = at.filter(|&at| leaf.key(at) == start);
        let at = at.expect("no VMA starts there");
        let vma = leaf.value(at);
        changes.open(leaf).remove(at);
        for (parent, slot) in path.parents() {
            let Some(gone) = self.join(index, self.node(parent), slot, &mut changes) else {
                break;
            };
            retired.push(gone);
            index = parent;
        }
        self.pull_up(&mut changes, &mut retired);

        drop(changes);
        for &node in &retired.nodes[..retired.count] {
            self.nodes.free(node);
        }
        self.set_len(self.len() - 1);
        vma
    }

    /// Joins a node that has lost an entry with a neighbour if both fit half a
    /// node, or if it is empty. Returns the node that left the tree.
    fn join<'a>(
        &'a self,
        index: u32,
        parent: &'a Node<FANOUT>,
        slot: usize,
        changes: &mut Changes<'a, FANOUT>,
    ) -> Option<u32> {
        let count = self.node(index).count();
        let few = |other: u32| count + self.node(other).count() <= FANOUT / 2;
        let fits = |other: u32| count == 0 || !self.is_shared() && few(other);
        let left = slot.checked_sub(1).map(|slot| parent.value(slot));
        let right = (slot + 1 < parent.count()).then(|| parent.value(slot + 1));
        let (kept, gone, slot) = if let Some(left) = left.filter(|&left| fits(left)) {
            (Some(left), index, slot)
        } else if let Some(right) = right.filter(|&right| fits(right)) {
            (Some(index), right, slot + 1)
        } else if count == 0 {
            (None, index, slot)
        } else {
            return None;
        };
        let parent = changes.open(parent);
        let node = changes.open(self.node(gone));
        if let Some(kept) = kept {
            // Above the leaves the first key may be stale; the parent knows.
            if node.level() > 0 && node.count() > 0 {
                node.set(0, parent.key(slot), node.value(0));
            }
            node.move_tail(0, changes.open(self.node(kept)));
        }
        parent.remove(slot);
        node.reshape(0, 0);
        Some(gone)
    }

    /// While the root has only one child, puts the child's entries in its
    /// place.
    fn pull_up<'a>(&'a self, changes: &mut Changes<'a, FANOUT>, retired: &mut Retired) {
        let root = self.node(self.root);
        while root.level() > 0 && root.count() == 1 {
            let child = root.value(0);
            let (root, node) = (changes.open(root), changes.open(self.node(child)));
            root.reshape(node.level(), 0);
            node.move_tail(0, root);
            node.reshape(0, 0);
            retired.push(child);
        }
    }
}
