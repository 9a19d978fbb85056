//! A fault on a huge page: Linux's `hugetlb_fault`.
//!
//! ```text
//!   (baseline: i_mmap for read)
//!   shown as a whole span: share lock for read ─► leaf, shared from now on (the span's lock)
//!      ─► another mapping has entered the page ──► Mapped      (not with `join=fault-mutex`)
//!   fault mutex ─► share lock for read ─► within the file? ── no ──► BeyondEnd
//!      ─► leaf: the mapping's, or shared from now on (the span's lock)
//!      ─► page: the file's; or from the pool, promised or not, cleared ── none ──► NoMemory
//!      ─► leaf locked: entered, and neighbours that the file has (around) ──► Mapped
//! ```
//!
//! `share=document`: a fault that begins to share a leaf holds `i_mmap` for read until it shares it.

use super::around;
use super::file::{FileSlot, HugeFile};
use super::mapping::HugeMapping;
use super::share::Class;
use super::stats::Waits;
use super::tables::{Leaf, Tables};
use crate::mm::Attributes;
use crate::mm::backing::VmFault;
use crate::page::FaultError;
use crate::policy::{HugeAround, HugeJoin, ShareSync};
use crate::wait::Fault;
use core::ops::Range;
use sync::Arc;

/// Serves a fault on a VMA that shows `mapping`.
pub(super) fn fault(mapping: &HugeMapping, fault: &VmFault<'_, '_>) -> Fault {
    let (vma, attributes) = (fault.vma, fault.attributes);
    let (file, tables) = (&mapping.file, &mapping.tables);
    let pool = &file.pool;
    let pages = pool.size.pages() as u64;
    let shown = mapping.shown(attributes.pgoff, vma.vma().range().len());
    let index = attributes.page_at(fault.distance()) / pages;
    let class = class_of(file, &shown, index, attributes);

    let mut waits = Waits::new(&pool.stats, &*pool.clock);
    let baseline = pool.sync == ShareSync::IMmapRwsem;
    let _i_mmap = baseline.then(|| waits.read(&file.i_mmap.lock));
    let joins = pool.join == HugeJoin::Leaf && class.is_some();
    if joins && index < file.len() {
        let _share = (!baseline).then(|| waits.read(&tables.share));
        let leaf = leaf(file, tables, index, class, &mut waits);
        if leaf.page(index).is_some() {
            // Most faults are of this kind: another mapping has it, and the leaf is this
            // one's too by now. No page is looked for.
            pool.stats.faults.add(1);
            return Fault::Mapped;
        }
    }
    let _mutex = waits.fault_mutex(pool.mutexes.of(file.id, index));
    let _share = (!baseline).then(|| waits.read(&tables.share));
    pool.stats.faults.add(1);
    // Truncate sets the new length first, and then takes the mutex of each page.
    if index >= file.len() {
        return Fault::Error(FaultError::BeyondEnd);
    }
    let leaf = leaf(file, tables, index, class, &mut waits);
    let Some(page) = page(file, index) else {
        return Fault::Error(FaultError::NoMemory);
    };
    if leaf.map(pool, index, page) && pool.around == HugeAround::Yes {
        around::map(file, &leaf, index, &shown);
    }
    Fault::Mapped
}

/// The leaf of an index. The caller keeps out unsharing.
fn leaf(
    file: &HugeFile,
    tables: &Tables,
    index: u64,
    class: Option<Class>,
    waits: &mut Waits<'_>,
) -> Arc<Leaf> {
    let span = file.pool.span(index);
    match tables.leaf(span) {
        Some(leaf) => leaf,
        None => {
            // As Linux does: it finds the owners of a leaf by the list of mappings, under this lock.
            let document = file.pool.sync == ShareSync::Document && class.is_some();
            let _i_mmap = document.then(|| waits.read(&file.i_mmap.lock));
            file.share(tables, span, class, waits)
        }
    }
}

/// The class that the VMA may share the leaf of an index with, if it shows all of its span.
fn class_of(
    file: &HugeFile,
    shown: &Range<u64>,
    index: u64,
    attributes: &Attributes,
) -> Option<Class> {
    let span = file.pool.span_indexes(file.pool.span(index));
    let whole = shown.start <= span.start && span.end <= shown.end;
    Class::of(attributes.protection).filter(|_| whole)
}

/// The page of an index, whose fault mutex is held.
fn page(file: &HugeFile, index: u64) -> Option<u32> {
    let pool = &file.pool;
    loop {
        let at = file.at(index);
        let (from, taken) = match at {
            FileSlot::Page(page) => return Some(page),
            FileSlot::Hole => match pool.take(false) {
                Some(taken) => (FileSlot::Hole, taken),
                // The last free page may have been reserved for this index meanwhile.
                None if file.at(index) != FileSlot::Hole => continue,
                None => return None,
            },
            FileSlot::Reserved => match file.change(index, FileSlot::Reserved, FileSlot::Filling) {
                true => (FileSlot::Filling, pool.take(true)?),
                // A mapping that had reserved it is gone.
                false => continue,
            },
            FileSlot::Filling => unreachable!("the fault mutex is held"),
        };
        if taken.is_used {
            pool.clear(taken.page);
        }
        if file.change(index, from, FileSlot::Page(taken.page)) {
            pool.stats.filled.add(1);
            return Some(taken.page);
        }
        // The index was reserved meanwhile: the fault goes on with that promise.
        pool.give(taken.page, false);
    }
}
