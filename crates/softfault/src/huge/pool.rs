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

    /// Why `pages` pages could not be promised. Some of them may have been promised to the memory before, so
    /// pages that are to be had are enough, and too few need not be the reason.
    pub(super) fn refused(&self, pages: u64) -> io::Error {
        let Self { size, total, .. } = self;
        let available = self.available();
        let cannot = format!(
            "cannot reserve {pages} huge pages of {size}: {available} of the pool's {total} are to be had"
        );
        let text = match pages.checked_sub(available) {
            None | Some(0) => format!(
                "{cannot}, so a limit refuses them: of the memory cgroup (hugetlb.*.rsvd.max), of the \
                 nodes that the process may use (cpuset.mems), or of its address space (ulimit -v)"
            ),
            Some(missing) => {
                let remedy = remedy(*size, total + missing);
                format!("{cannot}; {remedy} makes it large enough")
            }
        };
        crate::error::no_memory(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::{HugeSize, MachinePool};

    #[test]
    fn a_pool_that_is_large_enough_is_not_the_reason() {
        let pool = MachinePool {
            size: HugeSize::TwoMiB,
            total: 10,
            free: 8,
            reserved: 2,
            more: 0,
        };
        let small = pool.refused(7).to_string();
        assert!(
            small.contains("6 of the pool's 10 are to be had"),
            "{small}"
        );
        assert!(small.contains("makes it large enough"), "{small}");
        let limited = pool.refused(6).to_string();
        assert!(limited.contains("hugetlb.*.rsvd.max"), "{limited}");
        assert!(!limited.contains("large enough"), "{limited}");
    }
}
