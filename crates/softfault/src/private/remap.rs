//! Making the map shorter or longer.

use super::{Private, give_up, pages_for};
use crate::error::too_large;
use crate::fork::Memory;
use crate::managed::Managed;
use crate::signal::Masked;
use crate::{UncheckedAdvice, error};
use softfault_engine::anon::Anonymous;
use softfault_engine::mm::{MoveError, Protection};
use softfault_engine::mmu::{MmuError, TABLE_SPAN};
use std::io;
use std::sync::Arc;

impl Private {
    /// Lets the map have `new_len` bytes. Its present ones stay; new ones are as
    /// in a new map. Where its window has no room it moves to another, if
    /// it may.
    pub(crate) fn remap(
        &mut self,
        managed: &Managed,
        new_len: usize,
        may_move: bool,
    ) -> io::Result<()> {
        let bytes = (self.skip.checked_add(new_len))
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or_else(too_large)?;
        if new_len == 0 {
            // One invisible page stays: its bytes are not to come back when the map grows.
            self.unchecked_advise(managed, self.window(), UncheckedAdvice::DontNeed)?;
        }
        let (old, room) = (self.window(), self.anon.addresses());
        let end = room.start + pages_for(bytes);
        {
            let masked = self.access_path.masked();
            if end < old.end {
                let unmapped = managed.space.munmap(end..old.end, |_, _| {});
                unmapped.map_err(error::mm)?;
            } else if old.end < end && end <= room.end {
                self.enter(managed, old.end..end)?;
            } else if old.end < end {
                if !may_move {
                    return Err(error::no_memory("the map cannot grow where it is"));
                }
                self.grow_elsewhere(managed, new_len, masked.as_ref())?;
            }
        }
        self.len = new_len;
        self.keep_resized(managed);
        Ok(())
    }

    fn grow_elsewhere(
        &mut self,
        managed: &Managed,
        new_len: usize,
        masked: Option<&Masked>,
    ) -> io::Result<()> {
        let bytes = pages_for(self.skip + new_len);
        // Room for the next time: a map that grows step by step moves its pages seldom.
        let ample = self.anon.addresses().len().saturating_mul(2);
        let ample = ample.max(bytes).checked_next_multiple_of(TABLE_SPAN);
        let longer = match ample.map(|ample| self.anon.longer(ample)) {
            Some(Ok(longer)) => longer,
            _ => self.anon.longer(bytes).map_err(error::map)?,
        };
        let read_only = self.protection == Protection::Read;
        if read_only {
            // Pages are moved between windows that may be written to.
            let allowed = self.anon.restrict(Protection::ReadWrite);
            allowed.map_err(error::mmu)?;
        }
        let end = self.window().end;
        let (old, new) = (self.window().start, longer.addresses().start);
        let (from, to) = (Arc::clone(&self.anon).into(), longer.clone().into());
        let moved = (managed.space).move_to((&from, old..end), (&to, new..new + bytes));
        // The last references are this map's.
        drop((from, to));
        if let Err(error) = moved {
            if read_only {
                let _ = self.anon.restrict(Protection::Read);
            }
            give_up(longer);
            return Err(match error {
                MoveError::Budget => error::no_memory("the memory budget cannot hold the move"),
                MoveError::Mmu(error) => error::mmu(error),
                MoveError::Mappings(error) => error::mm(error),
            });
        }
        // From here on the new window is the map's, whole, whatever fails below.
        self.len = new_len;
        let old = core::mem::replace(&mut self.anon, Memory::new(longer));
        self.allow_inherit(masked);
        give_up(old.into_inner(masked));
        match read_only {
            true => restrict(&self.anon),
            false => Ok(()),
        }
    }
}

fn restrict(anon: &Arc<Anonymous>) -> io::Result<()> {
    let restricted: Result<(), MmuError> = anon.restrict(Protection::Read);
    restricted.map_err(error::mmu)
}
