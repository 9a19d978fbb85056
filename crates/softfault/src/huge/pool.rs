//! The machine's pool of huge pages of a size.

use super::machine::remedy;
use crate::huge_faults::HugeSize;
use std::io;

/// Its figures, in pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct MachinePool {
    size: HugeSize,
    /// Pages that it has.
    total: u64,
    /// Of those, pages that are nobody's.
    free: u64,
    /// Of those, pages that are promised.
    reserved: u64,
    /// Pages that the kernel may add when they are wanted, less those that it has added.
    more: u64,
}

impl MachinePool {
    /// `None` where the machine has no pages of this size at all.
    pub(super) fn of(size: HugeSize) -> Option<Self> {
        let kib = size.bytes() >> 10;
        let figure = |name| {
            let path = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/{name}");
            let text = std::fs::read_to_string(path).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let surplus = figure("surplus_hugepages").unwrap_or(0);
        Some(Self {
            size,
            total: figure("nr_hugepages")?,
            free: figure("free_hugepages")?,
            reserved: figure("resv_hugepages")?,
            more: (figure("nr_overcommit_hugepages").unwrap_or(0)).saturating_sub(surplus),
        })
    }

    /// True if it has a page, or could.
    pub(super) fn has_any(&self) -> bool {
        self.total + self.more > 0
    }

    /// Pages that could be promised now.
    fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved) + self.more
    }

    /// Why `pages` pages could not be promised.
    pub(super) fn too_small(&self, pages: u64) -> io::Error {
        let Self { size, total, .. } = self;
        let available = self.available();
        let enough = total + pages.saturating_sub(available);
        let remedy = remedy(*size, enough);
        crate::error::no_memory(&format!(
            "cannot reserve {pages} huge pages of {size}: {available} of the pool's {total} are to \
             be had; {remedy} makes it large enough"
        ))
    }
}
