//! Models of the soft page tables: walks, maps, zaps, forks and protection
//! against each other. Tables have two entries here, so that four levels are 16
//! pages.
//!
//! Bytes are plain memory to loom, and pages are told apart by them: a thread that reads
//! another page's bytes has used a frame after its reuse.

use std::sync::Arc;

use crate::model::explore;
use crate::model::spawn;
use softfault_engine_loom::PAGE_SIZE;
use softfault_engine_loom::mmu::soft::cores::{CoreHandle, Cores};
use softfault_engine_loom::mmu::soft::frames::Frames;
use softfault_engine_loom::mmu::soft::tables::Tables;
use softfault_engine_loom::mmu::soft::tlb::{Tlb, TlbKey, Transfer};

const SPAN: usize = Tables::<2>::SPAN;

struct Soft(Tables<2>);

/// A core's own.
struct Core {
    handle: CoreHandle,
    tlb: Tlb,
}

impl Soft {
    fn new() -> Arc<Self> {
        let frames = Frames::new(16 * PAGE_SIZE, 1).unwrap();
        Arc::new(Self(Tables::new(frames, Cores::new(2)).unwrap()))
    }

    fn core(&self) -> Core {
        Core {
            handle: self.0.cores().add_core().unwrap(),
            tlb: Tlb::default(),
        }
    }

    /// Maps a page of `byte`s, writable.
    fn map(&self, addr: usize, byte: u8) {
        let page = [byte; PAGE_SIZE];
        // SAFETY: a page to copy from.
        unsafe { self.0.copy(addr..addr + PAGE_SIZE, page.as_ptr(), true) }.unwrap();
    }

    fn zap(&self, addr: usize) {
        self.0.zap(std::slice::from_ref(&(addr..addr + PAGE_SIZE)));
    }

    fn protect(&self, addr: usize) {
        self.0
            .protect(std::slice::from_ref(&(addr..addr + PAGE_SIZE)));
    }

    /// Reads as an access does: by the buffer, or by the tables.
    fn read(&self, core: &mut Core, addr: usize) -> Option<u8> {
        let Core { handle, tlb } = core;
        let place = TlbKey { space: 1, addr };
        let mut byte = [0];
        let hit = self.0.hit(handle, tlb, place, Transfer::Load(&mut byte));
        let load = Transfer::Load(&mut byte);
        (hit || self.0.miss(handle, tlb, place, addr, true, load)).then_some(byte[0])
    }

    /// Writes likewise; `false` if the page may not be written to.
    fn write(&self, core: &mut Core, addr: usize, byte: u8) -> bool {
        let Core { handle, tlb } = core;
        let place = TlbKey { space: 1, addr };
        let byte = [byte];
        self.0.hit(handle, tlb, place, Transfer::Store(&byte))
            || (self.0).miss(handle, tlb, place, addr, true, Transfer::Store(&byte))
    }
}

#[test]
fn reads_against_a_zap_and_reuse() {
    explore(Some(3), || {
        let soft = Soft::new();
        soft.map(0, b'a');
        // Keeps the leaf.
        soft.map(PAGE_SIZE, b'k');
        let mut core = soft.core();
        let reader = {
            let soft = Arc::clone(&soft);
            spawn(move || {
                for _ in 0..2 {
                    let byte = soft.read(&mut core, 0);
                    assert!(matches!(byte, None | Some(b'a')), "{byte:?}");
                }
                core
            })
        };
        soft.zap(0);
        // Takes the frame that was freed last.
        soft.map(SPAN, b'b');
        let mut core = reader.join().unwrap();
        assert_eq!(soft.read(&mut core, 0), None);
        assert_eq!(soft.read(&mut core, SPAN), Some(b'b'));
    });
}

#[test]
fn reads_against_a_leaf_that_goes() {
    explore(Some(3), || {
        let soft = Soft::new();
        soft.map(0, b'a');
        let tables = soft.0.count();
        let mut core = soft.core();
        let reader = {
            let soft = Arc::clone(&soft);
            spawn(move || {
                let byte = soft.read(&mut core, 0);
                assert!(matches!(byte, None | Some(b'a')), "{byte:?}");
            })
        };
        soft.zap(0);
        assert_eq!(soft.0.count(), tables - 1);
        // The leaf's frame among others.
        soft.map(SPAN, b'b');
        reader.join().unwrap();
    });
}

#[test]
fn a_map_against_a_zap_of_its_leaf() {
    explore(Some(3), || {
        let soft = Soft::new();
        soft.map(0, b'a');
        let mapper = {
            let soft = Arc::clone(&soft);
            spawn(move || soft.map(PAGE_SIZE, b'b'))
        };
        soft.zap(0);
        mapper.join().unwrap();
        let mut core = soft.core();
        assert_eq!(soft.read(&mut core, 0), None);
        assert_eq!(soft.read(&mut core, PAGE_SIZE), Some(b'b'));
        soft.zap(PAGE_SIZE);
        // The root and one of each level but the leaf's.
        assert_eq!(soft.0.count(), 3);
    });
}

#[test]
fn two_make_the_same_tables() {
    explore(Some(3), || {
        let soft = Soft::new();
        let other = {
            let soft = Arc::clone(&soft);
            spawn(move || soft.map(PAGE_SIZE, b'b'))
        };
        soft.map(0, b'a');
        other.join().unwrap();
        let mut core = soft.core();
        assert_eq!(soft.read(&mut core, 0), Some(b'a'));
        assert_eq!(soft.read(&mut core, PAGE_SIZE), Some(b'b'));
        assert_eq!(soft.0.count(), 4, "tables that lost were freed");
    });
}

#[test]
fn a_writer_against_a_fork() {
    explore(Some(3), || {
        let (parent, child) = (0, 2 * SPAN);
        let soft = Soft::new();
        soft.map(parent, b'a');
        let mut core = soft.core();
        let writer = {
            let soft = Arc::clone(&soft);
            spawn(move || {
                // Two writes, the second by a buffered translation, if it can be.
                let wrote = soft.write(&mut core, parent, b'b');
                (wrote, soft.write(&mut core, parent, b'c'))
            })
        };
        soft.0.fork(parent..parent + SPAN, child).unwrap();
        let mut reader = soft.core();
        let before = soft.read(&mut reader, child).unwrap();
        let wrote = writer.join().unwrap();
        // The child's first view is final: all writes before the fork.
        assert_eq!(soft.read(&mut reader, child), Some(before));
        let last = match wrote {
            (false, false) => b'a',
            (true, false) => b'b',
            (true, true) => b'c',
            (false, true) => panic!("writable again"),
        };
        assert_eq!(before, last);
        // And the parent's copy is its own.
        soft.0.make_writable(parent).unwrap();
        assert!(soft.write(&mut reader, parent, b'd'));
        assert_eq!(soft.read(&mut reader, child), Some(last));
    });
}

#[test]
fn a_protect_against_a_writer() {
    explore(Some(3), || {
        let soft = Soft::new();
        soft.map(0, b'a');
        let mut core = soft.core();
        let writer = {
            let soft = Arc::clone(&soft);
            spawn(move || {
                // The second by a buffered translation, if it can be.
                let wrote = soft.write(&mut core, 0, b'b');
                (wrote, soft.write(&mut core, 0, b'c'), core)
            })
        };
        soft.protect(0);
        let mut reader = soft.core();
        let before = soft.read(&mut reader, 0).unwrap();
        let (first, second, mut core) = writer.join().unwrap();
        // The first view is final: all writes.
        assert_eq!(soft.read(&mut reader, 0), Some(before));
        let last = match (first, second) {
            (false, false) => b'a',
            (true, false) => b'b',
            (true, true) => b'c',
            (false, true) => panic!("writable again"),
        };
        assert_eq!(before, last);
        assert!(!soft.write(&mut core, 0, b'd'), "it stays protected");
        soft.0.make_writable(0).unwrap();
        assert!(soft.write(&mut core, 0, b'd'));
        assert_eq!(soft.read(&mut reader, 0), Some(b'd'));
    });
}

#[test]
fn an_eviction_against_a_writer() {
    // The page is copied out and zapped, and comes back in another frame.
    explore(Some(3), || {
        let soft = Soft::new();
        soft.map(0, b'a');
        // Keeps the leaf.
        soft.map(PAGE_SIZE, b'k');
        let mut core = soft.core();
        let writer = {
            let soft = Arc::clone(&soft);
            spawn(move || {
                let mut last = b'a';
                for byte in [b'b', b'c'] {
                    if soft.write(&mut core, 0, byte) {
                        last = byte;
                    }
                }
                last
            })
        };
        soft.protect(0);
        let mut reader = soft.core();
        let saved = soft.read(&mut reader, 0).unwrap();
        soft.zap(0);
        soft.map(0, saved);
        let last = writer.join().unwrap();
        assert_eq!(soft.read(&mut reader, 0), Some(last), "a write was lost");
    });
}

#[test]
fn both_sides_copy_shared_pages() {
    explore(Some(2), || {
        let (parent, child) = (0, 2 * SPAN);
        let soft = Soft::new();
        soft.map(parent, b'a');
        soft.0.fork(parent..parent + SPAN, child).unwrap();
        let mut core = soft.core();
        let other = {
            let soft = Arc::clone(&soft);
            spawn(move || {
                soft.0.make_writable(child).unwrap();
                assert!(soft.write(&mut core, child, b'c'));
                core
            })
        };
        soft.0.make_writable(parent).unwrap();
        let mut core = soft.core();
        assert!(soft.write(&mut core, parent, b'b'));
        other.join().unwrap();
        assert_eq!(soft.read(&mut core, parent), Some(b'b'));
        assert_eq!(soft.read(&mut core, child), Some(b'c'));
        // Each frame is freed once.
        soft.0.zap(std::slice::from_ref(&(0..4 * SPAN)));
    });
}

#[test]
fn a_copy_against_a_reader_of_the_same_page() {
    // The reader may have buffered the frame that both shared.
    explore(Some(3), || {
        let (parent, child) = (0, 2 * SPAN);
        let soft = Soft::new();
        soft.map(parent, b'a');
        soft.0.fork(parent..parent + SPAN, child).unwrap();
        let mut core = soft.core();
        let reader = {
            let soft = Arc::clone(&soft);
            spawn(move || {
                let first = soft.read(&mut core, parent).unwrap();
                let second = soft.read(&mut core, parent).unwrap();
                assert!(first <= second, "{first} after {second}");
                core
            })
        };
        let mut writer = soft.core();
        soft.0.make_writable(parent).unwrap();
        assert!(soft.write(&mut writer, parent, b'b'));
        let mut core = reader.join().unwrap();
        assert_eq!(soft.read(&mut core, parent), Some(b'b'));
        assert_eq!(soft.read(&mut core, child), Some(b'a'));
    });
}

#[test]
fn a_zap_against_another_that_needs_a_frame() {
    explore(Some(3), || {
        let soft = Soft::new();
        soft.map(0, b'a');
        // Keeps the leaf, and makes that of the mapper.
        soft.map(PAGE_SIZE, b'k');
        soft.map(SPAN, b'k');
        let mut core = soft.core();
        let reader = {
            let soft = Arc::clone(&soft);
            spawn(move || {
                let byte = soft.read(&mut core, 0);
                assert!(matches!(byte, None | Some(b'a')), "{byte:?}");
            })
        };
        let mapper = {
            let soft = Arc::clone(&soft);
            spawn(move || soft.map(SPAN + PAGE_SIZE, b'b'))
        };
        soft.zap(0);
        reader.join().unwrap();
        mapper.join().unwrap();
    });
}
