//! A reference to a folio, as a guard.

use super::folio::Folio;
use super::node::Node;
use core::ops::Deref;
use sync::atomic::Ordering;

/// A folio that cannot be evicted or reused while this lives.
pub struct FolioRef<'a> {
    node: &'a Node,
    folio: &'a Folio,
}

impl<'a> FolioRef<'a> {
    /// Wraps a reference that the caller has taken.
    pub(crate) fn new(node: &'a Node, folio: &'a Folio) -> Self {
        Self { node, folio }
    }

    /// Keeps the reference without the guard; `Node::put` gives it back.
    pub(crate) fn leak(self) -> &'a Folio {
        let folio = self.folio;
        core::mem::forget(self);
        folio
    }
}

impl Clone for FolioRef<'_> {
    fn clone(&self) -> Self {
        // Relaxed: there is a reference already, which keeps reclaim away.
        let refs = self.folio.refs.fetch_add(1, Ordering::Relaxed);
        assert!(refs > 0, "folio reference count");
        Self { ..*self }
    }
}

impl Deref for FolioRef<'_> {
    type Target = Folio;

    fn deref(&self) -> &Folio {
        self.folio
    }
}

impl Drop for FolioRef<'_> {
    fn drop(&mut self) {
        self.node.put(self.folio);
    }
}
