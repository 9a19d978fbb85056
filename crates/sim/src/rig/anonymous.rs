//! Mapping and unmapping anonymous memory.

use super::Rig;
use crate::job::PAGE;
use core::ops::Range;
use softfault_engine::anon::Anonymous;
use softfault_engine::mm::{Attributes, Backing, Protection};
use sync::Arc;

/// Anonymous memory that is mapped. To be given back by [`Rig::unmap_anonymous`].
pub struct AnonymousMap(Arc<Anonymous>);

impl AnonymousMap {
    /// Its first byte.
    pub fn start(&self) -> usize {
        self.0.addresses().start
    }
}

impl Rig {
    /// Maps `bytes` of zeros.
    pub fn map_anonymous(&self, bytes: u64) -> Result<AnonymousMap, String> {
        let map = self.make_anonymous(bytes)?;
        self.map_part(&map, map.0.addresses())?;
        Ok(map)
    }

    /// `bytes` of zeros that are not mapped yet.
    pub fn make_anonymous(&self, bytes: u64) -> Result<AnonymousMap, String> {
        let anon = Anonymous::new(self.node.clone(), bytes as usize);
        anon.map(AnonymousMap).map_err(|_| no_room())
    }

    /// Maps a part of it: that with these addresses.
    pub fn map_part(&self, map: &AnonymousMap, range: Range<usize>) -> Result<(), String> {
        let attributes = Attributes {
            backing: Backing::from(map.0.clone()),
            pgoff: (range.start - map.start()) as u64 / PAGE,
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        self.space.mmap(range, attributes).map_err(|_| no_room())
    }

    /// Unmaps a part of memory.
    pub fn unmap_part(&self, range: Range<usize>) {
        let unmapped = self.space.munmap(range, |_, _| {});
        assert!(unmapped.is_ok(), "no node for what is left of a mapping");
    }

    /// Gives it back.
    pub fn unmap_anonymous(&self, map: AnonymousMap) {
        let unmapped = self.space.munmap(map.0.addresses(), |_, _| {});
        assert!(unmapped.is_ok(), "unmapping a whole window needs no node");
    }
}

fn no_room() -> String {
    "no room for another mapping".to_owned()
}
