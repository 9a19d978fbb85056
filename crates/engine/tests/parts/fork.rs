//! Forks of a space with many mappings.

use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::backing::VmOps;
use softfault_engine::mm::{Attributes, Backing, ForkError};
use softfault_oracle::Rig;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Memory without pages that a child has a copy of.
#[derive(Debug)]
struct Copied {
    number: usize,
    /// How often any of them was asked which memory it is.
    asked: Arc<AtomicUsize>,
}

impl VmOps for Copied {
    fn object(&self) -> *const () {
        self.asked.fetch_add(1, Relaxed);
        core::ptr::without_provenance(self.number)
    }

    fn fork(&self) -> Result<Option<Backing>, ForkError> {
        let copy = Self {
            number: self.number + (1 << 20),
            asked: self.asked.clone(),
        };
        Ok(Some(Backing::new(copy)))
    }
}

/// Failed before: the copy of each mapping was looked for among all before it.
#[test]
fn a_fork_of_many_private_mappings_compares_each_with_few() {
    const COUNT: usize = 1000;
    let rig = Rig::new(2048);
    let asked = Arc::<AtomicUsize>::default();
    let backings = (1..=COUNT).map(|number| {
        let asked = asked.clone();
        Backing::new(Copied { number, asked })
    });
    let range = |place: usize| (100 + 2 * place) * PAGE_SIZE..(101 + 2 * place) * PAGE_SIZE;
    // Each is shown twice.
    let twice: Vec<Backing> = backings.flat_map(|one| [one.clone(), one]).collect();
    for (place, backing) in twice.into_iter().enumerate() {
        let attributes = Attributes {
            backing,
            ..Attributes::default()
        };
        rig.space.mmap(range(place), attributes).unwrap();
    }
    let child = rig.another_space();
    let before = asked.load(Relaxed);
    rig.space.fork(&child).unwrap();
    let asked = asked.load(Relaxed) - before;
    assert!(asked < 8 * COUNT, "{asked}");
    let mut numbers = Vec::new();
    let mmap = child.mmap_lock().read();
    child.for_each_vma(&mmap, 0..usize::MAX, |vma| {
        let backing = vma.attributes(&mmap).backing;
        let copy: &Copied = backing.of().unwrap();
        numbers.push(copy.number - (1 << 20));
    });
    drop(mmap);
    let expected: Vec<_> = (1..=COUNT).flat_map(|number| [number, number]).collect();
    assert_eq!(numbers, expected);
    let all = range(0).start..range(2 * COUNT).end;
    child.munmap(all.clone(), |_, _| {}).unwrap();
    rig.unmap(all);
    drop(child);
    rig.finish();
}
