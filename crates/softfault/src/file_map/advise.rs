//! `madvise(2)` of a map of a file.

use super::FileMap;
use crate::advice::Advice;
use crate::error::{self, FaultError};
use crate::managed::Managed;
use crate::range::whole_pages;
use core::ops::Range;
use std::io;

impl FileMap {
    /// Gives advice about the pages of some addresses, which are not none.
    pub(crate) fn advise(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
        advice: Advice,
    ) -> io::Result<()> {
        match advice {
            Advice::Normal | Advice::Random | Advice::Sequential => {
                let _masked = self.access_path.masked();
                if self.served.hold().is_kernels() {
                    // For now; the engine knows it for later.
                    advice.to_kernel(&addresses)?;
                }
                if addresses.len() >= self.cache.addresses().len() / 2 {
                    self.served.advise(matches!(advice, Advice::Random));
                }
                let advice = advice.lasting().expect("it lasts");
                let advised = managed.space.madvise(whole_pages(&addresses), advice);
                advised.map_err(error::mm)
            }
            Advice::WillNeed => {
                self.prefetch(addresses);
                Ok(())
            }
            Advice::Cold => Ok(()),
            Advice::PageOut => {
                self.invalidate(addresses);
                Ok(())
            }
            Advice::PopulateRead => Ok(self.populate(managed, addresses, false)?),
            Advice::PopulateWrite if self.cache.is_writable() => {
                Ok(self.populate(managed, addresses, true)?)
            }
            Advice::PopulateWrite => Err(FaultError::ReadOnly.into()),
            Advice::DontFork | Advice::DoFork => {
                self.served.allow_inherit(advice == Advice::DoFork);
                Ok(())
            }
            about_mapping => about_mapping.about_mapping(),
        }
    }
}
