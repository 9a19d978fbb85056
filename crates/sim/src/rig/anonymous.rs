//! Mapping and unmapping anonymous memory.

use super::Rig;
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
        let no_room = || "no room for another mapping".to_owned();
        let anon = Anonymous::new(self.node.clone(), bytes as usize).map_err(|_| no_room())?;
        let attributes = Attributes {
            backing: Backing::from(anon.clone()),
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        let mapped = self.space.mmap(anon.addresses(), attributes);
        mapped.map_err(|_| no_room())?;
        Ok(AnonymousMap(anon))
    }

    /// Gives it back.
    pub fn unmap_anonymous(&self, map: AnonymousMap) {
        let unmapped = self.space.munmap(map.0.addresses(), |_, _| {});
        assert!(unmapped.is_ok(), "unmapping a whole window needs no node");
    }
}
