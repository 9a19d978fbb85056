//! A fault on a file mapping: look the page up, and branch.

use super::{Fault, FaultError, FaultFlags, Wait, mmu_error};
use crate::PAGE_SIZE;
use crate::cache::folio::flag;
use crate::cache::reads::read;
use crate::cache::{FolioRef, OnTruncate, PageCache};
use crate::page::Advice;
use sync::Arc;

mod around;
mod baseline;
mod hole;
pub(super) mod map;
mod miss;
mod pin;
mod vanished;
mod vm_ops;

pub use pin::{Pin, pin, unpin};

/// Serves a fault at `addr` of the window; as in swap, so in a file.
pub(super) fn fault(
    cache: &Arc<PageCache>,
    addr: usize,
    advice: Advice,
    flags: FaultFlags,
) -> Fault {
    let addr = addr & !(PAGE_SIZE - 1);
    if is_beyond_end(cache, addr) {
        return Fault::Error(FaultError::BeyondEnd);
    }
    let Some(folio) = cache.find(addr) else {
        if flags.read {
            cache.retry_io_miss().add(1);
        }
        return miss::fault(cache, addr, advice);
    };
    let state = folio.state();
    if state & flag::LOCKED != 0 {
        return Fault::Retry(Wait::folio(cache, folio));
    }
    if state & flag::ERROR != 0 {
        return failed(cache, &folio);
    }
    if state & flag::MAPPED != 0 {
        // Somebody else's fault was faster, as a rule.
        return vanished::fault(cache, folio, addr);
    }
    map::folio(cache, folio, addr, advice, flags)
}

fn is_beyond_end(cache: &PageCache, addr: usize) -> bool {
    cache.offset(addr) >= cache.end() && cache.on_truncate == OnTruncate::Error
}

/// Reports a failed read and forgets it, so that the next touch tries again.
fn failed(cache: &Arc<PageCache>, folio: &FolioRef<'_>) -> Fault {
    let error = folio.read_error();
    if folio.try_lock() {
        if folio.is(flag::DEAD) {
            folio.unlock();
        } else {
            read::discard(&cache.node, cache, folio);
        }
    }
    Fault::Error(error)
}
