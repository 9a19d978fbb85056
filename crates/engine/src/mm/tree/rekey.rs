//! A VMA that begins elsewhere.

use super::{Changes, NoNodes, Tree, Walk};

impl<const FANOUT: usize> Tree<FANOUT> {
    /// The VMA that starts at `old` starts at `new` from now on; no other
    /// starts between the two. The caller holds `mmap_lock` for write. Changes
    /// nothing if it fails.
    ///
    /// Readers find the VMA under one of the two, or under both, and never
    /// under neither. A lookup without a lock may, if an empty part is between the two: it goes by `mmap_lock` then.
    ///
    /// # Panics
    /// If no VMA starts at `old`, or one does at `new`.
    pub fn rekey(&self, old: usize, new: usize, walk: &mut Walk) -> Result<(), NoNodes> {
        let leaf = self.path(old, walk).leaf();
        let node = self.node(leaf);
        let at = node.last_at_or_below(old);
        let at = at.filter(|&at| node.key(at) == old);
        let at = at.expect("no VMA starts there");
        let vma = node.value(at);
        let same_leaf = self.path(new, walk).leaf() == leaf;
        if same_leaf {
            let below = at.checked_sub(1).is_none_or(|at| node.key(at) < new);
            let above = at + 1 == node.count() || node.key(at + 1) > new;
            assert!(below && above, "another VMA starts between");
            Changes::new().open(node).set(at, new, vma);
        } else {
            self.insert(new, vma, walk)?;
            self.remove(old, walk);
        }
        Ok(())
    }
}
