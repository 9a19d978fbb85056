//! Random verbs on a space and on a model that knows no VMAs, only the bytes that each
//! page shows.

use std::ops::Range;

use proptest::prelude::*;
use softfault_engine::PAGE_SIZE;
use softfault_engine::mm::{
    AddressSpace, Advice, Attributes, MmError, NotMapped, Protection, VmaRead, VmaSlabs,
};
use softfault_engine::policy::{SpaceLocks, VmaLockKind, VmaReuse};
use softfault_oracle::{Numbered, Still};
use sync::Arc;

const PAGES: usize = 64;
const FIRST: usize = 1000;

#[derive(Debug, Clone)]
enum Op {
    Map(Range<usize>, Attributes),
    Unmap(Range<usize>),
    Protect(Range<usize>, Protection),
    Advise(Range<usize>, Advice),
    Exit,
}

fn op() -> impl Strategy<Value = Op> {
    let pages = (0..PAGES, 1..20_usize).prop_map(|(from, len)| from..(from + len).min(PAGES));
    let protection = prop_oneof![Just(Protection::None), Just(Protection::Read)];
    let advice = prop_oneof![
        Just(Advice::Normal),
        Just(Advice::Random),
        Just(Advice::Sequential)
    ];
    // Few values, so that neighbours often agree; a page shows the page of its
    // own number, or the one `jump` behind it.
    let attributes =
        (0..2_u64, 0..2_u64, protection.clone()).prop_map(|(backing, jump, p)| Attributes {
            backing: Numbered(backing).into(),
            pgoff: jump * 1000,
            protection: p,
            advice: Advice::Normal,
        });
    prop_oneof![
        6 => (pages.clone(), attributes).prop_map(|(pages, mut attributes)| {
            attributes.pgoff += pages.start as u64;
            Op::Map(pages, attributes)
        }),
        3 => pages.clone().prop_map(Op::Unmap),
        3 => (pages.clone(), protection).prop_map(|(pages, p)| Op::Protect(pages, p)),
        3 => (pages, advice).prop_map(|(pages, a)| Op::Advise(pages, a)),
        1 => Just(Op::Exit),
    ]
}

/// The mapping of each page.
type Model = Vec<Option<Attributes>>;

fn addresses(pages: &Range<usize>) -> Range<usize> {
    (FIRST + pages.start) * PAGE_SIZE..(FIRST + pages.end) * PAGE_SIZE
}

/// The attributes of the page `behind` pages behind a VMA's first.
fn of_page(attributes: &Attributes, behind: usize) -> Attributes {
    Attributes {
        pgoff: attributes.pgoff + behind as u64,
        ..attributes.clone()
    }
}

/// Records pieces that were removed, and asserts that they were there.
fn remove(model: &mut Model, piece: Range<usize>, attributes: &Attributes) {
    let pages = piece.start / PAGE_SIZE - FIRST..piece.end / PAGE_SIZE - FIRST;
    for (behind, page) in pages.enumerate() {
        assert_eq!(model[page].take(), Some(of_page(attributes, behind)));
    }
}

/// Changes the mapped pages; an error if some are not.
fn modify(
    model: &mut Model,
    pages: Range<usize>,
    change: impl Fn(&mut Attributes),
) -> Result<(), MmError> {
    let part = &mut model[pages];
    part.iter_mut().flatten().for_each(change);
    let hole = part.iter().any(Option::is_none);
    if hole { Err(MmError::Unmapped) } else { Ok(()) }
}

fn apply(space: &AddressSpace, model: &mut Model, op: &Op) {
    match op.clone() {
        Op::Map(pages, attributes) => {
            let taken = model[pages.clone()].iter().any(Option::is_some);
            let mapped = space.mmap(addresses(&pages), attributes.clone());
            assert_eq!(mapped, if taken { Err(MmError::Overlap) } else { Ok(()) });
            if !taken {
                for (behind, page) in pages.enumerate() {
                    model[page] = Some(of_page(&attributes, behind));
                }
            }
        }
        Op::Unmap(pages) => {
            let mut last = 0;
            let unmapped = space.munmap(addresses(&pages), |piece, attributes| {
                assert!(last <= piece.start, "pieces come by address");
                last = piece.end;
                remove(model, piece, &attributes);
            });
            assert_eq!(unmapped, Ok(()));
            assert!(model[pages].iter().all(Option::is_none));
        }
        Op::Protect(pages, protection) => assert_eq!(
            space.mprotect(addresses(&pages), protection),
            modify(model, pages, |a| a.protection = protection)
        ),
        Op::Advise(pages, advice) => assert_eq!(
            space.madvise(addresses(&pages), advice),
            modify(model, pages, |a| a.advice = advice)
        ),
        Op::Exit => {
            space.exit(|piece, attributes| remove(model, piece, &attributes));
            assert!(model.iter().all(Option::is_none));
        }
    }
}

/// The page of a locked VMA.
fn shown(read: &VmaRead<'_>, page: usize) -> Attributes {
    let start = read.vma().start() / PAGE_SIZE - FIRST;
    read.with(|attributes| of_page(attributes, page - start))
}

fn compare(space: &AddressSpace, slabs: &VmaSlabs, model: &Model) {
    let mmap = space.mmap_lock().read();
    space.validate(&mmap);
    drop(mmap);
    assert_eq!(slabs.vmas_in_use() as usize, space.map_count());
    let locks = match space.mmap_lock().kind() {
        VmaLockKind::Refcount | VmaLockKind::Biased => 0,
        VmaLockKind::Rwsem => slabs.vmas_in_use(),
    };
    assert_eq!(slabs.vma_locks_in_use(), locks);
    for (page, expected) in model.iter().enumerate() {
        let address = (FIRST + page) * PAGE_SIZE + page;
        let read = space.lock_vma(address);
        // Later readers, and the next verb, meet a bias.
        if let Some(read) = &read {
            read.bias(space.mmap_lock());
        }
        let found = read.as_ref().map(|read| shown(read, page));
        assert_eq!(&found, expected);
        drop(read);
        match (space.lock_vma_or_mmap_lock(address), expected) {
            (Ok(read), Some(expected)) => assert_eq!(&shown(&read, page), expected),
            (Err(NotMapped), None) => {}
            (found, expected) => panic!("{found:?}, not {expected:?}"),
        }
    }
    let outside = [0, FIRST * PAGE_SIZE - 1, (FIRST + PAGES) * PAGE_SIZE];
    for address in outside {
        assert!(space.lock_vma(address).is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]
    #[test]
    fn verbs_do_their_work_on_each_page(
        ops in prop::collection::vec(op(), 0..60),
        kind in prop::sample::select(vec![
            VmaLockKind::Refcount,
            VmaLockKind::Rwsem,
            VmaLockKind::Biased,
        ]),
        reuse in prop::sample::select(vec![VmaReuse::TypeSafe, VmaReuse::Rcu]),
    ) {
        let slabs = VmaSlabs::new(1000);
        let locks = SpaceLocks { reuse, ..kind.into() };
        let space = AddressSpace::with_lock(slabs.clone(), Arc::new(Still), locks).unwrap();
        let mut model = vec![None; PAGES];
        for op in &ops {
            apply(&space, &mut model, op);
            compare(&space, &slabs, &model);
        }
        // Nobody else was there.
        let write_locked = space.mmap_lock().vma_misses().write_locked.get();
        assert_eq!(space.lock_stats().caught_reuses() + write_locked, 0);
        space.exit(|piece, attributes| remove(&mut model, piece, &attributes));
        assert_eq!(slabs.vmas_in_use() + slabs.vma_locks_in_use(), 0);
    }
}
