//! Models of verbs that share `mmap_lock` (`verbs=shared`): the lock of two groups, then whole maps and unmaps beside one
//! another, beside faults, and beside verbs that hold `mmap_lock` alone.

use std::ops::Range;
use std::sync::Arc;

use crate::model::spawn;
use crate::model::{Still, explore};
use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use softfault_engine_loom::PAGE_SIZE;
use softfault_engine_loom::lock::group::GroupLock;
use softfault_engine_loom::mm::backing::VmOps;
use softfault_engine_loom::mm::{AddressSpace, Attributes, Backing, MmError, VmaSlabs};
use softfault_engine_loom::policy::{MmapVerbs, SpaceLocks};

/// A cell for each verb; others may use all. Loom finds accesses at the same time.
struct Cells {
    group: GroupLock,
    cells: [UnsafeCell<u32>; 2],
}

// SAFETY: whether the group keeps accesses apart is what is modelled; loom checks each.
unsafe impl Sync for Cells {}

impl Cells {
    fn new(words: usize) -> Arc<Self> {
        Arc::new(Self {
            group: GroupLock::with_words(words),
            cells: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    fn add(&self, cell: usize) {
        self.cells[cell].with_mut(|value| {
            // SAFETY: as above.
            unsafe { *value += 1 }
        });
    }

    fn verb(&self, cell: usize) {
        if let Some(_verb) = self.group.verb() {
            self.add(cell);
        }
    }
}

/// Starts a thread on a value that this one uses too.
fn beside<S: 'static, T: 'static>(
    shared: &Arc<S>,
    work: impl FnOnce(&S) -> T + 'static,
) -> JoinHandle<T> {
    let shared = shared.clone();
    spawn(move || work(&shared))
}

/// The verbs of two processors beside another.
fn two_verbs_beside_another(words: usize) {
    let cells = Cells::new(words);
    let verb = beside(&cells, |cells| {
        sync::run_on(1);
        cells.verb(0);
    });
    let other = beside(&cells, |cells| {
        let _other = cells.group.other();
        cells.add(0);
        cells.add(1);
    });
    cells.verb(1);
    verb.join().unwrap();
    other.join().unwrap();
}

#[test]
fn two_verbs_and_another() {
    explore(Some(3), || two_verbs_beside_another(1));
}

#[test]
fn two_verbs_by_words_of_their_own_and_another() {
    explore(Some(2), || two_verbs_beside_another(2));
}

/// Where it is refused at one word it has left the others.
#[test]
fn another_that_is_refused_at_the_second_word() {
    explore(None, || {
        let cells = Cells::new(2);
        let verb = beside(&cells, |cells| {
            sync::run_on(1);
            cells.verb(1);
        });
        if let Some(_other) = cells.group.try_other() {
            cells.add(1);
        }
        cells.verb(0);
        verb.join().unwrap();
        assert!(cells.group.try_verb().is_some());
    });
}

#[test]
fn two_verbs_and_another_that_spins() {
    explore(Some(3), || {
        sync::model::spin();
        two_verbs_beside_another(1);
    });
}

#[test]
fn a_verb_between_two_others() {
    explore(Some(3), || {
        let cells = Cells::new(1);
        let verb = beside(&cells, |cells| {
            cells.verb(0);
            cells.verb(0);
        });
        drop(cells.group.other());
        if let Some(_other) = cells.group.try_other() {
            cells.add(0);
        }
        let other = cells.group.other();
        cells.add(0);
        drop(other);
        verb.join().unwrap();
    });
}

/// Memory that nothing else shows.
#[derive(Debug)]
struct Own(usize);

impl VmOps for Own {
    fn object(&self) -> *const () {
        core::ptr::without_provenance(self.0)
    }

    fn is_alone(&self, _pgoff: u64, _range: &Range<usize>) -> bool {
        true
    }
}

fn attributes(number: usize) -> Attributes {
    Attributes {
        backing: Backing::new(Own(number)),
        pgoff: number as u64,
        ..Attributes::default()
    }
}

fn pages(pages: Range<usize>) -> Range<usize> {
    pages.start * PAGE_SIZE..pages.end * PAGE_SIZE
}

fn space(slabs: &sync::Arc<VmaSlabs>) -> Arc<AddressSpace> {
    let locks = SpaceLocks {
        verbs: MmapVerbs::Shared,
        ..SpaceLocks::default()
    };
    Arc::new(AddressSpace::with_lock(slabs.clone(), sync::Arc::new(Still), locks).unwrap())
}

/// A fault on page 1: it has the VMA of `attributes(1)` there, whole, or none.
fn fault(space: &AddressSpace) {
    if let Some(read) = space.lock_vma(PAGE_SIZE) {
        assert_eq!(read.vma().range(), pages(1..2));
        read.with(|now| assert_eq!(now.pgoff, 1));
    }
}

fn finish(slabs: &VmaSlabs, space: &AddressSpace, mapped: usize) {
    space.validate(&space.mmap_lock().read());
    assert_eq!(space.map_count(), mapped);
    space.exit(|_, _| {});
    assert_eq!(slabs.vmas_in_use(), 0);
}

/// Ranges that overlap in one page: one of the two is mapped.
#[test]
fn two_maps_of_one_gap() {
    explore(Some(2), || {
        let slabs = VmaSlabs::new(3);
        let space = space(&slabs);
        let other = beside(&space, |space| space.mmap(pages(1..3), attributes(1)));
        let own = space.mmap(pages(2..4), attributes(2));
        let both = [own, other.join().unwrap()];
        assert!(both.contains(&Ok(())) && both.contains(&Err(MmError::Overlap)));
        finish(&slabs, &space, 1);
    });
}

/// Ranges beside one another: both are mapped.
#[test]
fn two_maps_beside_one_another() {
    explore(Some(2), || {
        let slabs = VmaSlabs::new(3);
        let space = space(&slabs);
        let other = beside(&space, |space| {
            space.mmap(pages(1..2), attributes(1)).unwrap()
        });
        space.mmap(pages(2..3), attributes(2)).unwrap();
        other.join().unwrap();
        finish(&slabs, &space, 2);
    });
}

/// Both end well, and one has removed it.
#[test]
fn two_unmaps_of_one_range() {
    explore(Some(2), || {
        let slabs = VmaSlabs::new(2);
        let space = space(&slabs);
        space.mmap(pages(1..2), attributes(1)).unwrap();
        let unmap = |space: &AddressSpace| {
            let mut removed = 0;
            space.munmap(pages(1..2), |_, _| removed += 1).unwrap();
            removed
        };
        let other = beside(&space, unmap);
        let own = unmap(&space);
        assert_eq!(own + other.join().unwrap(), 1);
        finish(&slabs, &space, 0);
    });
}

/// A fault beside an unmap and the map that gets its slot: it has one VMA or the other, whole.
#[test]
fn a_fault_beside_unmap_and_reuse() {
    explore(Some(2), || {
        let slabs = VmaSlabs::new(1);
        let space = space(&slabs);
        space.mmap(pages(1..2), attributes(1)).unwrap();
        let other = beside(&space, fault);
        space.munmap(pages(1..2), |_, _| {}).unwrap();
        space.mmap(pages(2..3), attributes(2)).unwrap();
        other.join().unwrap();
        finish(&slabs, &space, 1);
    });
}

/// A fault on a range while it is mapped.
#[test]
fn a_fault_beside_a_map() {
    explore(Some(2), || {
        let slabs = VmaSlabs::new(1);
        let space = space(&slabs);
        let other = beside(&space, fault);
        space.mmap(pages(1..2), attributes(1)).unwrap();
        other.join().unwrap();
        finish(&slabs, &space, 1);
    });
}

/// A holder of `mmap_lock` sees all of a verb or nothing.
#[test]
fn a_reader_of_the_space_beside_an_unmap() {
    explore(None, || {
        let slabs = VmaSlabs::new(2);
        let space = space(&slabs);
        space.mmap(pages(1..2), attributes(1)).unwrap();
        let other = beside(&space, |space| {
            space.munmap(pages(1..2), |_, _| {}).unwrap()
        });
        {
            let mmap = space.mmap_lock().read();
            space.validate(&mmap);
            let mut found = 0;
            space.for_each_vma(&mmap, pages(0..9), |vma| {
                assert_eq!(vma.attributes(&mmap).pgoff, 1);
                found += 1;
            });
            assert_eq!(found, space.map_count());
        }
        other.join().unwrap();
        finish(&slabs, &space, 0);
    });
}

/// A fork write-locks all VMAs, and copies them: with the one that is mapped beside it, or without.
#[test]
fn a_fork_beside_a_map() {
    explore(None, || {
        let slabs = VmaSlabs::new(4);
        let (parent, child) = (space(&slabs), space(&slabs));
        parent.mmap(pages(1..2), attributes(1)).unwrap();
        let other = beside(&parent, |parent| {
            parent.mmap(pages(2..3), attributes(2)).unwrap()
        });
        parent.fork(&child).unwrap();
        assert!((1..=2).contains(&child.map_count()));
        other.join().unwrap();
        // It looks at free slots too, which the parent's verb may be taking.
        child.validate(&child.mmap_lock().read());
        child.exit(|_, _| {});
        finish(&slabs, &parent, 2);
    });
}

/// The same beside an unmap: the child has the VMA that is unmapped, or has it not.
#[test]
fn a_fork_beside_an_unmap() {
    explore(None, || {
        let slabs = VmaSlabs::new(4);
        let (parent, child) = (space(&slabs), space(&slabs));
        parent.mmap(pages(1..2), attributes(1)).unwrap();
        parent.mmap(pages(2..3), attributes(2)).unwrap();
        let other = beside(&parent, |parent| {
            parent.munmap(pages(2..3), |_, _| {}).unwrap()
        });
        parent.fork(&child).unwrap();
        assert!((1..=2).contains(&child.map_count()));
        other.join().unwrap();
        // It looks at free slots too, which the parent's verb may be taking.
        child.validate(&child.mmap_lock().read());
        child.exit(|_, _| {});
        finish(&slabs, &parent, 1);
    });
}
