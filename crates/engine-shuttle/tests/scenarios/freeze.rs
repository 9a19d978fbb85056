//! A process forks: its private memory is frozen, which faults on it wait for, and faults
//! on files must not.

use crate::scene::explore;
use softfault_engine_shuttle::PAGE_SIZE;
use softfault_engine_shuttle::anon::Anonymous;
use softfault_engine_shuttle::mm::{Attributes, Backing, Protection};
use softfault_oracle::{Rig, Stage, TestStore};
use sync::Arc;
use sync::thread::spawn;

const PAGES: usize = 3;

/// The freeze ends when the reads of a file have, some of which begin under it. A write to
/// private memory waits for the thaw; so does the unmapping of a part of it.
#[test]
fn fork_against_file_fault() {
    explore("fork_against_file_fault", 3_000, |seed| {
        let policies = Stage::of_pages(PAGES).with_policies_of(seed).policies;
        let rig = Arc::new(Rig::with_policies(4096, policies));
        let store = TestStore::new((PAGES * PAGE_SIZE) as u64);
        let cache = rig.map(&store);
        let file = cache.addresses();
        let anon = Anonymous::new(rig.node.clone(), PAGES * PAGE_SIZE).unwrap();
        let memory = anon.addresses();
        let attributes = Attributes {
            backing: Backing::from(anon.clone()),
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        rig.space.mmap(memory.clone(), attributes).unwrap();
        let reader = |first: usize| {
            let (rig, store, start) = (rig.clone(), store.clone(), file.start);
            spawn(move || {
                for page in first..PAGES {
                    let at = page * PAGE_SIZE + 9;
                    assert_eq!(rig.touch(start + at), Ok(store.byte(at as u64)));
                }
            })
        };
        let readers = [reader(0), reader(1)];
        let writer = {
            let (rig, start) = (rig.clone(), memory.start);
            spawn(move || rig.write(start, &[5]).unwrap())
        };
        let unmapper = {
            let (rig, end) = (rig.clone(), memory.end);
            spawn(move || rig.unmap(end - PAGE_SIZE..end))
        };
        let frozen = rig.space.freeze([memory.clone()]);
        let state = |page: usize| {
            let addr = memory.start + page * PAGE_SIZE;
            assert!(!anon.is_locked(addr), "the child would find it locked");
            anon.page_state(addr)
        };
        let before = [state(0), state(1), state(2)];
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!([state(0), state(1), state(2)], before, "frozen");
        drop(frozen);
        writer.join().unwrap();
        unmapper.join().unwrap();
        assert_eq!(rig.touch(memory.start), Ok(5));
        rig.unmap(memory.start..memory.end - PAGE_SIZE);
        rig.unmap(file);
        drop((cache, anon));
        Arc::into_inner(rig).unwrap().finish();
    });
}
