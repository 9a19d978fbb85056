//! `madvise(2)` of private memory.

use super::Private;
use crate::managed::Managed;
use crate::range::whole_pages;
use crate::{Advice, UncheckedAdvice, error, process};
use core::ops::Range;
use std::io;

impl Private {
    /// Gives advice about the pages of some addresses.
    pub(crate) fn advise(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
        advice: Advice,
    ) -> io::Result<()> {
        let pages = whole_pages(&addresses);
        if pages.is_empty() {
            return Ok(());
        }
        let write = advice == Advice::PopulateWrite;
        if write || advice == Advice::PopulateRead {
            return Ok(self.populate(managed, pages, write)?);
        }
        let masked = self.access_path.masked();
        let space = &managed.space;
        let advised = match advice {
            Advice::Normal | Advice::Random | Advice::Sequential => {
                space.madvise(pages, advice.lasting().expect("it lasts"))
            }
            Advice::WillNeed => space.will_need(pages),
            Advice::Cold => space.cold(pages),
            Advice::PageOut => space.page_out(pages),
            about_mapping => {
                drop(masked);
                return about_mapping.about_mapping();
            }
        };
        advised.map_err(error::mm)
    }

    /// Gives pages away, or up.
    pub(crate) fn unchecked_advise(
        &self,
        managed: &Managed,
        addresses: Range<usize>,
        advice: UncheckedAdvice,
    ) -> io::Result<()> {
        let pages = whole_pages(&addresses);
        if pages.is_empty() {
            return Ok(());
        }
        let _masked = self.access_path.masked();
        let advised = match advice {
            UncheckedAdvice::DontNeed => {
                let advised = managed.space.dont_need(pages.clone());
                if let (Ok(()), Some(process)) = (&advised, process::get()) {
                    process.mmu().zap_poison(&pages);
                }
                advised
            }
            UncheckedAdvice::Free => managed.space.free(pages),
            UncheckedAdvice::Remove => {
                return Err(error::invalid("private memory is no part of a file"));
            }
        };
        advised.map_err(error::mm)
    }
}
