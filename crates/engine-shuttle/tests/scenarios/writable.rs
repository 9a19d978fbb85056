//! A file that is written to through maps: a write against write-back, eviction, truncate, punch and flush, and against
//! another write to its page.
//!
//! Each writer has a byte of its own in each page, so that it knows the byte that the page has to show, and that a flush has to bring
//! to the store.

use crate::scene::explore;
use softfault_engine_shuttle::cache::PageCache;
use softfault_engine_shuttle::fault::{self, FaultError, NeverInterrupted};
use softfault_engine_shuttle::mm::{AddressSpace, Attributes, Backing, Protection};
use softfault_engine_shuttle::{PAGE_SIZE, Store};
use softfault_oracle::{Rig, Stage, TestStore, byte_at};
use std::mem::ManuallyDrop;
use sync::Arc;
use sync::thread::{JoinHandle, spawn};

const EIO: i32 = 5;
const PAGE: u64 = PAGE_SIZE as u64;

/// A file in a map.
#[derive(Clone)]
struct File {
    rig: Arc<Rig>,
    store: Arc<TestStore>,
    cache: Arc<PageCache>,
}

impl File {
    /// So many bytes; the seed says the policies, and whether reads are asynchronous.
    fn new(seed: u64, bytes: u64) -> Self {
        let policies = Stage::of_pages(4).with_policies_of(seed).policies;
        let rig = Arc::new(Rig::with_policies(4096, policies));
        let store = TestStore::with_queue(bytes, [0, 4][(seed % 2) as usize]);
        let cache = rig.map_writable(&store);
        Self { rig, store, cache }
    }

    fn write(&self, at: u64, byte: u8) -> Result<(), FaultError> {
        self.rig
            .write(self.cache.addresses().start + at as usize, &[byte])
    }

    fn read(&self, at: u64) -> Result<u8, FaultError> {
        self.rig.touch(self.cache.addresses().start + at as usize)
    }

    /// Writes back the dirty bytes of a page, as a flush does.
    fn flush(&self, page: u64) {
        let start = self.cache.addresses().start + page as usize * PAGE_SIZE;
        let mut cursor = self.cache.write_back_of(start..start + PAGE_SIZE);
        while self.cache.write_back(&mut cursor) {}
    }

    /// Makes it shorter or longer, as the library does.
    fn set_len(&self, bytes: u64) {
        let _length = self.cache.hold_length();
        if bytes < self.cache.end() {
            let addresses = self.cache.addresses();
            let mut cursor =
                (self.cache).write_back_of(addresses.start + bytes as usize..addresses.end);
            while self.cache.write_back(&mut cursor) {}
        }
        self.cache.truncate(bytes.min(self.cache.end()));
        self.store.set_len(bytes);
        self.cache.truncate(bytes);
    }

    /// A writer of its own byte of some pages: it reads its own writes.
    fn writer(&self, place: u64, pages: core::ops::Range<u64>, rounds: u8) -> JoinHandle<()> {
        let file = self.clone();
        spawn(move || {
            for round in 1..=rounds {
                for page in pages.clone() {
                    file.write(page * PAGE + place, round).unwrap();
                    assert_eq!(file.read(page * PAGE + place), Ok(round));
                }
            }
        })
    }

    fn beside(&self, act: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
        let file = self.clone();
        spawn(move || act(&file))
    }

    /// Takes all down; these bytes are in the store once dirty pages are written back.
    fn finish(self, expected: &[(u64, u8)]) {
        let Self { rig, store, cache } = self;
        for &(at, byte) in expected {
            let shown = rig.touch(cache.addresses().start + at as usize);
            assert_eq!(shown, Ok(byte), "in the map, at {at}");
        }
        let mut cursor = cache.write_back_of(cache.addresses());
        while cache.write_back(&mut cursor) {}
        assert_eq!(cache.dirty_pages(), 0);
        assert_eq!(store.len(), Ok(cache.end()));
        for &(at, byte) in expected {
            assert_eq!(store.byte(at), byte, "in the file, at {at}");
        }
        rig.unmap(cache.addresses());
        drop(cache);
        Arc::into_inner(rig).expect("no thread is left").finish();
    }
}

fn join<const N: usize>(threads: [JoinHandle<()>; N]) {
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn write_against_write_back() {
    explore("write_against_write_back", 700, |seed| {
        let file = File::new(seed, 2 * PAGE);
        join([
            file.writer(0, 0..2, 2),
            file.writer(9, 0..1, 2),
            file.beside(|file| (0..2).for_each(|page| file.flush(page))),
        ]);
        file.finish(&[(0, 2), (PAGE, 2), (9, 2), (8, byte_at(0, 8))]);
    });
}

#[test]
fn write_against_eviction() {
    explore("write_against_eviction", 700, |seed| {
        let file = File::new(seed, 2 * PAGE);
        join([
            file.writer(0, 0..2, 2),
            file.writer(9, 0..1, 2),
            file.beside(|file| (0..2).for_each(|_| file.rig.evict_all())),
        ]);
        file.finish(&[(0, 2), (PAGE, 2), (9, 2), (8, byte_at(0, 8))]);
    });
}

/// A flush has its caller's writes, also where others have the page on its way at the time, or take it away.
#[test]
fn flush_against_write_back_and_eviction() {
    explore("flush_against_write_back_and_eviction", 700, |seed| {
        let file = File::new(seed, 2 * PAGE);
        join([
            file.beside(|file| {
                for round in 1..3 {
                    file.write(0, round).unwrap();
                    file.flush(0);
                    assert_eq!(file.store.byte(0), round);
                }
            }),
            file.beside(|file| {
                file.write(9, 1).unwrap();
                file.flush(0);
                assert_eq!(file.store.byte(9), 1);
            }),
            file.beside(|file| file.rig.evict_all()),
        ]);
        file.finish(&[(0, 2), (9, 1)]);
    });
}

/// The whole window is protected at once.
#[test]
fn write_against_protection_of_the_window() {
    explore("write_against_protection_of_the_window", 700, |seed| {
        let file = File::new(seed, 2 * PAGE);
        join([
            file.writer(0, 0..2, 2),
            file.beside(|file| {
                file.cache.protect_window();
                file.flush(0);
            }),
            file.beside(|file| {
                file.cache.protect_window();
            }),
        ]);
        file.finish(&[(0, 2), (PAGE, 2)]);
    });
}

/// Pages that are cut off stay so under any writes, and pages before them are not lost.
#[test]
fn write_against_truncate() {
    explore("write_against_truncate", 700, |seed| {
        let file = File::new(seed, 3 * PAGE);
        join([
            file.writer(0, 0..1, 2),
            file.beside(|file| {
                for byte in 1..3 {
                    match file.write(2 * PAGE + 3, byte) {
                        Ok(()) | Err(FaultError::BeyondEnd) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            }),
            file.beside(|file| {
                file.set_len(PAGE + 100);
                assert_eq!(file.store.len(), Ok(PAGE + 100));
                file.set_len(3 * PAGE);
            }),
        ]);
        let last = file.read(2 * PAGE + 3).unwrap();
        assert!(last < 3);
        assert_eq!(file.read(2 * PAGE + 4), Ok(0), "it was cut off");
        file.finish(&[(0, 2), (2 * PAGE + 3, last), (PAGE + 100, 0)]);
    });
}

/// Others make it longer, and a touch follows; or it becomes shorter meanwhile, and then it stays so.
#[test]
fn touch_past_the_end_against_truncate() {
    explore("touch_past_the_end_against_truncate", 700, |seed| {
        let file = File::new(seed, 3 * PAGE);
        file.set_len(PAGE + 100);
        let touch = |file: &File| match file.write(2 * PAGE, 1) {
            Ok(()) | Err(FaultError::BeyondEnd) => {}
            Err(error) => panic!("{error:?}"),
        };
        join([
            file.beside(|file| {
                file.store.set_len(3 * PAGE);
            }),
            file.beside(move |file| {
                touch(file);
                touch(file);
            }),
            file.beside(|file| {
                file.set_len(PAGE + 200);
            }),
            file.writer(PAGE + 50, 0..1, 1),
        ]);
        // The last of the two says how long it is, and the next look finds that.
        let bytes = file.store.len().unwrap();
        assert!([PAGE + 200, 3 * PAGE].contains(&bytes));
        let refused = file.read(2 * PAGE);
        assert_eq!(refused.is_err(), bytes < 3 * PAGE, "{refused:?}");
        if file.cache.end() < bytes {
            file.set_len(bytes);
        }
        file.finish(&[(PAGE + 50, 1)]);
    });
}

/// A store past an end that others have moved on stays, and so do the bytes that they have appended.
#[test]
fn write_to_the_last_page_against_append() {
    explore("write_to_the_last_page_against_append", 700, |seed| {
        let file = File::new(seed, 2 * PAGE);
        file.set_len(PAGE + 100);
        file.write(PAGE, 1).unwrap();
        join([
            file.beside(|file| {
                file.store.set_len(2 * PAGE);
                file.write(PAGE + 300, 3).unwrap();
            }),
            file.writer(PAGE + 7, 0..1, 2),
            file.beside(|file| file.flush(1)),
            file.beside(|file| file.rig.evict_all()),
        ]);
        file.flush(1);
        let bytes = file.store.len().unwrap();
        assert_eq!(file.store.byte(PAGE + 300), 3);
        file.set_len(bytes);
        file.finish(&[(PAGE, 1), (PAGE + 7, 2), (PAGE + 300, 3)]);
    });
}

/// A hole removes the writes before it, and no later ones.
#[test]
fn write_against_punch() {
    explore("write_against_punch", 700, |seed| {
        let file = File::new(seed, 3 * PAGE);
        let page = file.cache.addresses().start..file.cache.addresses().start + PAGE_SIZE;
        join([
            file.writer(0, 1..2, 2),
            file.beside(|file| {
                file.write(5, 1).unwrap();
                file.flush(0);
                file.write(5, 2).unwrap();
            }),
            file.beside(move |file| {
                let punch = || {
                    file.store.punch(0..1);
                    Ok::<(), ()>(())
                };
                file.cache.empty(page, punch).unwrap();
                file.write(6, 1).unwrap();
            }),
        ]);
        let left = file.read(5).unwrap();
        assert!([0, 1, 2].contains(&left), "{left}");
        assert_eq!(file.read(7), Ok(0), "what the file had is gone");
        file.finish(&[(PAGE, 2), (5, left), (6, 1)]);
    });
}

/// Each handle is told once, and pages that could not be written are there, and are written later.
#[test]
fn errors_are_reported_once() {
    explore("errors_are_reported_once", 700, |seed| {
        let file = File::new(seed, 2 * PAGE);
        file.store.fail_writes(0, Some(EIO));
        let handle = |place: u64| {
            file.beside(move |file| {
                let mut seen = 0;
                file.write(place, 7).unwrap();
                file.flush(0);
                let told = file.cache.write_error_since(&mut seen);
                assert_eq!(told, Some(FaultError::Io(EIO)));
                assert_eq!(file.read(place), Ok(7));
            })
        };
        join([
            handle(0),
            handle(9),
            file.beside(|file| file.rig.evict_all()),
            file.writer(3, 1..2, 1),
        ]);
        file.store.fail_writes(0, None);
        let mut seen = 0;
        assert!(file.cache.write_error_since(&mut seen).is_some());
        file.flush(0);
        assert_eq!(file.cache.write_error_since(&mut seen), None);
        file.finish(&[(0, 7), (9, 7), (PAGE + 3, 1)]);
    });
}

/// Two maps show one page, in spaces of their own: each sees the other's writes, and neither loses them.
#[test]
fn two_maps_of_one_page() {
    explore("two_maps_of_one_page", 700, |seed| {
        let file = File::new(seed, PAGE);
        let space = Arc::new(ManuallyDrop::new(file.rig.another_space()));
        let window = 0x7000_0000_0000..0x7000_0000_0000 + PAGE_SIZE;
        let attributes = Attributes {
            backing: Backing::from(file.cache.clone()),
            protection: Protection::ReadWrite,
            ..Attributes::default()
        };
        space.mmap(window.clone(), attributes).unwrap();
        let write = |file: &File, space: &AddressSpace, at: usize, byte: u8| {
            let addr = 0x7000_0000_0000 + at;
            let written = file.rig.with_core(|core| {
                fault::write_at(core, space, addr, &[byte], &NeverInterrupted).is_ok()
            });
            assert!(written);
        };
        let (other, of_other) = (space.clone(), file.clone());
        join([
            file.writer(0, 0..1, 2),
            spawn(move || {
                for round in 1..3 {
                    write(&of_other, &other, 9, round);
                    assert_eq!(of_other.read(9), Ok(round), "by the other map");
                }
            }),
            file.beside(|file| {
                file.flush(0);
                file.rig.evict_all();
            }),
        ]);
        let space = ManuallyDrop::into_inner(Arc::into_inner(space).unwrap());
        space.exit(|_, _| {});
        drop(space);
        file.finish(&[(0, 2), (9, 2)]);
    });
}
