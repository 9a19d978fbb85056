//! Beginning to share a leaf: Linux's `huge_pmd_share`.

use super::file::HugeFile;
use super::stats::Waits;
use super::tables::{Leaf, Slot, Tables};
use crate::lock::{Mutex, order};
use crate::page::Protection;
use sync::Arc;

/// Mappings of one class share: they may do the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Read,
    ReadWrite,
}

impl Class {
    const COUNT: usize = 2;

    pub(super) fn of(protection: Protection) -> Option<Self> {
        match protection {
            Protection::None => None,
            Protection::Read => Some(Self::Read),
            Protection::ReadWrite => Some(Self::ReadWrite),
        }
    }
}

/// The leaves of a span that mappings share, by class.
pub(super) struct Span(pub(super) Mutex<[Option<Shared>; Class::COUNT], { order::SPAN }>);

impl Span {
    /// No mapping has a leaf of it.
    pub(super) fn new() -> Self {
        Self(Mutex::ranked([const { None }; Class::COUNT]))
    }
}

/// A leaf, and how many mappings have it. With none it stays as it is, and the next finds
/// all of it: a span's pages are entered once in the life of a file, and not once for each
/// time that its last mapping goes. Linux frees such a table.
pub(super) struct Shared {
    pub(super) leaf: Arc<Leaf>,
    pub(super) sharers: u32,
}

impl HugeFile {
    /// The leaf of a mapping for a span: the one that it has, one that others of its
    /// class have, or a new one. With a class, the VMA shows the whole span.
    ///
    /// The caller keeps out unsharing of this mapping: by the share lock, or `i_mmap`
    /// in the baseline. `i_mmap` is not needed here as well (`Document` takes it): Linux finds the owners of a leaf
    /// by `i_mmap`, and here the span has them. A thread that takes pages out of all mappings holds it for
    /// writing, so that no mapping leaves a leaf meanwhile. A mapping that joins one only makes the leaf
    /// found more often (`rmap`).
    pub(super) fn share(
        &self,
        tables: &Tables,
        span: u64,
        class: Option<Class>,
        waits: &mut Waits<'_>,
    ) -> Arc<Leaf> {
        let Some(class) = class else {
            let mut slot = tables.slot(span).lock();
            let new = || Slot {
                leaf: Leaf::new(&self.pool),
                class: None,
            };
            return slot.get_or_insert_with(new).leaf.clone();
        };
        let mut shared = waits.lock(&self.spans[span as usize].0);
        let mut slot = tables.slot(span).lock();
        if let Some(slot) = &*slot {
            // Another fault of this space was faster.
            return slot.leaf.clone();
        }
        let place = &mut shared[class as usize];
        match place {
            Some(known) => {
                known.sharers += 1;
                self.pool.stats.shared.add(1);
            }
            None => {
                *place = Some(Shared {
                    leaf: Leaf::new(&self.pool),
                    sharers: 1,
                });
            }
        }
        let leaf = place.as_ref().expect("there is one now").leaf.clone();
        *slot = Some(Slot {
            leaf: leaf.clone(),
            class: Some(class),
        });
        leaf
    }

    /// Mappings that share the leaf of a span, in the class that has most.
    pub fn sharers(&self, span: u64) -> u32 {
        let shared = self.spans[span as usize].0.lock();
        let sharers = shared.iter().flatten().map(|known| known.sharers);
        sharers.max().unwrap_or(0)
    }
}
