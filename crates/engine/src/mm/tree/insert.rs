//! Entering a VMA.

use super::{Changes, MAX_LEVELS, NoNodes, Node, Path, Tree, Walk};

/// Nodes asked for in advance, so that a verb fails before it has changed
/// anything.
#[derive(Debug, Default)]
pub struct Spare {
    nodes: [u32; MAX_LEVELS],
    count: usize,
}

impl Spare {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    fn take(&mut self) -> u32 {
        self.count -= 1;
        self.nodes[self.count]
    }
}

impl<const FANOUT: usize> Tree<FANOUT> {
    /// Enters a VMA. The caller holds `mmap_lock` for write. Changes nothing
    /// if it fails.
    ///
    /// # Panics
    /// If there is one that starts at `start`.
    pub fn insert(&self, start: usize, vma: u32, walk: &mut Walk) -> Result<(), NoNodes> {
        let path = self.path(start, walk);
        let split = self.nodes_to_split(&path);
        let mut spare = Spare::default();
        self.fill(&mut spare, split)?;
        self.insert_at((path, split), (start, vma), &mut spare, &mut Changes::new());
        assert!(spare.count == 0);
        self.set_len(self.len() + 1);
        Ok(())
    }

    /// How many nodes one more entry in the leaf of this path takes: one beside each full node from the leaf up, and one below the
    /// root if all are full.
    pub(super) fn nodes_to_split(&self, path: &Path) -> usize {
        let full = (path.nodes().rev())
            .take_while(|&node| self.node(node).count() == FANOUT)
            .count();
        full + usize::from(full == path.nodes().len())
    }

    /// Enters a VMA into the leaf of a path, which begins at the root, or at a node that has room. It takes `split` nodes.
    pub(super) fn insert_at<'a>(
        &'a self,
        (mut path, split): (Path, usize),
        (start, vma): (usize, u32),
        spare: &mut Spare,
        changes: &mut Changes<'a, FANOUT>,
    ) {
        if split > path.nodes().len() {
            let below = spare.take();
            self.push_down(path.root(), below, changes);
            path.push_below_root(below);
        }
        let leaf = self.node(path.leaf());
        let slot = leaf.last_at_or_below(start);
        assert!(
            slot.is_none_or(|slot| leaf.key(slot) != start),
            "a VMA starts at {start:#x} already"
        );
        // The entry to insert, and its place, level by level.
        let (mut key, mut value) = (start, vma);
        let mut at = slot.map_or(0, |slot| slot + 1);
        let mut node = leaf;
        for (parent, slot) in path.parents() {
            if node.count() < FANOUT {
                break;
            }
            let parent = self.node(parent);
            let is_last = slot + 1 == parent.count();
            let right = spare.take();
            key = split_node(
                changes.open(node),
                changes.open(self.node(right)),
                (at, key, value),
                is_last,
            );
            (node, at, value) = (parent, slot + 1, right);
        }
        changes.open(node).insert(at, key, value);
    }

    /// Sees to it that there are as many spare nodes. There is none if it fails.
    pub fn fill(&self, spare: &mut Spare, count: usize) -> Result<(), NoNodes> {
        assert!(count <= MAX_LEVELS, "the tree is deeper than it can be");
        while spare.count < count {
            let Some(node) = self.nodes.alloc() else {
                self.give_back(spare);
                return Err(NoNodes);
            };
            spare.nodes[spare.count] = node;
            spare.count += 1;
        }
        Ok(())
    }

    /// Frees spare nodes.
    pub fn give_back(&self, spare: &mut Spare) {
        while spare.count > 0 {
            self.nodes.free(spare.take());
        }
    }

    /// Moves all that the root has into its only child, `below`.
    fn push_down<'a>(&'a self, root: u32, below: u32, changes: &mut Changes<'a, FANOUT>) {
        let root = changes.open(self.node(root));
        let child = changes.open(self.node(below));
        let level = root.level();
        child.reshape(level, 0);
        root.move_tail(0, child);
        root.reshape(level + 1, 1);
        root.set(0, 0, below);
    }
}

/// Splits the full `node`, its upper part going to the empty `right`, and puts
/// `entry` (place, key, value) where it belongs. Returns where `right` begins.
///
/// A node that is the last of its parent and is added to at its end stays
/// full: spaces that grow upwards fill their nodes.
fn split_node<const FANOUT: usize>(
    node: &Node<FANOUT>,
    right: &Node<FANOUT>,
    (at, key, value): (usize, usize, u32),
    is_last: bool,
) -> usize {
    let appends = is_last && at == FANOUT;
    let middle = if appends { FANOUT } else { FANOUT / 2 };
    right.reshape(node.level(), 0);
    node.move_tail(middle, right);
    if at > middle || appends {
        right.insert(at - middle, key, value);
    } else {
        node.insert(at, key, value);
    }
    right.key(0)
}

impl Path {
    /// The root's entries have moved into its new only child.
    fn push_below_root(&mut self, below: u32) {
        assert!(self.depth < MAX_LEVELS, "the tree is deeper than it can be");
        self.steps.copy_within(0..self.depth, 1);
        self.steps[1].0 = below;
        self.steps[0].1 = 0;
        self.depth += 1;
    }

    /// The nodes, the root first.
    fn nodes(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + '_ {
        self.steps[..self.depth].iter().map(|step| step.0)
    }
}
