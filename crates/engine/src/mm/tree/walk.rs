//! The whole tree: in order, and its invariants for tests.

use super::{Entry, Tree, Walk};

/// The shape of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Levels, the leaves' included.
    pub levels: usize,
    /// Nodes, the roots included.
    pub nodes: usize,
    /// VMAs.
    pub entries: usize,
}

impl<const FANOUT: usize> Tree<FANOUT> {
    /// Calls `f` with every VMA, by address. The caller holds `mmap_lock`.
    pub fn for_each(&self, mut f: impl FnMut(Entry)) {
        let mut walk = Walk::default();
        let mut from = Some(0);
        while let Some(start) = from {
            let next = self.ceiling(start, &mut walk);
            let Some(entry) = next.expect("mmap_lock is held") else {
                return;
            };
            f(entry);
            from = entry.start.checked_add(1);
        }
    }

    /// Asserts everything that the tree promises itself, and tells its shape.
    /// The caller holds `mmap_lock`.
    ///
    /// # Panics
    /// If the tree is broken.
    pub fn check(&self) -> Shape {
        let mut shape = Shape {
            levels: 0,
            nodes: 0,
            entries: 0,
        };
        for (part, &root) in self.roots.iter().enumerate() {
            let level = self.node(root).level();
            let (lower, upper) = self.parts.bounds(part);
            let last = upper.map_or(usize::MAX, |upper| upper - 1);
            self.check_below(root, level, lower..=last, &mut shape);
            let least = if self.is_shared() { 1 } else { 2 };
            assert!(level == 0 || self.node(root).count() >= least);
            shape.levels = shape.levels.max(level + 1);
        }
        assert_eq!(shape.entries, self.len());
        shape
    }

    fn check_below(
        &self,
        index: u32,
        level: usize,
        range: core::ops::RangeInclusive<usize>,
        shape: &mut Shape,
    ) {
        let node = self.node(index);
        let count = node.count();
        shape.nodes += 1;
        assert_eq!(node.level(), level);
        assert!(count > 0 || self.roots.contains(&index), "an empty node");
        assert!(node.begin().is_some(), "a change was not ended");
        // The first key above the leaves is not looked at.
        let first = usize::from(level > 0);
        for at in first..count {
            assert!(range.contains(&node.key(at)), "a key outside its node");
            assert!(at == first || node.key(at - 1) < node.key(at), "no order");
        }
        if level == 0 {
            shape.entries += count;
            return;
        }
        for at in 0..count {
            let from = if at == 0 {
                *range.start()
            } else {
                node.key(at)
            };
            let to = if at + 1 < count {
                node.key(at + 1) - 1
            } else {
                *range.end()
            };
            self.check_below(node.value(at), level - 1, from..=to, shape);
            if at > 0 {
                let counts = [at - 1, at].map(|at| self.node(node.value(at)).count());
                let both: usize = counts.iter().sum();
                let fit = both <= FANOUT / 2;
                assert!(self.is_shared() || !fit, "two neighbours fit one node");
            }
        }
    }
}
