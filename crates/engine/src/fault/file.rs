//! A fault on a file mapping: look the page up, and branch.

use super::{Fault, FaultError, FaultFlags, Wait, filemap, map, miss, read, vanished};
use crate::PAGE_SIZE;
use crate::cache::folio::flag;
use crate::cache::{FolioRef, OnTruncate, PageCache};
use crate::mm::Advice;
use crate::policy::MissAccounting;
use sync::Arc;

pub(crate) fn fault(
    cache: &Arc<PageCache>,
    addr: usize,
    advice: Advice,
    flags: FaultFlags,
) -> Fault {
    let addr = addr & !(PAGE_SIZE - 1);
    if cache.offset(addr) >= cache.end() && cache.on_truncate == OnTruncate::Error {
        return Fault::Error(FaultError::BeyondEnd);
    }
    // Linux's rules for files are not those that it has for swap.
    if cache.node.policies.miss_accounting != MissAccounting::Adaptive && cache.private().is_none()
    {
        return filemap::fault(cache, addr, advice, flags);
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
        return vanished::file(cache, folio, addr);
    }
    map::folio(cache, folio, addr, advice, flags)
}

/// Reports a failed read and forgets it, so that the next touch tries again.
pub(super) fn failed(cache: &Arc<PageCache>, folio: &FolioRef<'_>) -> Fault {
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
