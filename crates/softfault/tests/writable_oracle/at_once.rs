//! Operations at the same time: by threads of a process, and by processes.

use crate::child;
use crate::sides::{Sides, builder, pattern};
use crate::write_scene::{PAGE, write};
use softfault::{Advice, Coherence, MmapMut};
use softfault_oracle::Finally;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// An operation of one of two processes on its own pages.
#[derive(Debug, Clone, Copy)]
struct Store {
    at: usize,
    count: usize,
    byte: u8,
}

impl Store {
    fn to(self, map: &mut MmapMut) {
        map[self.at..self.at + self.count].fill(self.byte);
    }
}

impl Sides {
    /// Each thread has words of its own in each page of a part; another flushes, and has pages given away.
    pub fn threads(&mut self, at: usize, which: usize) {
        let start = at & !7;
        let words = ((self.len - start) / 8).min(64 * PAGE / 8);
        let threads = 2 + which % 3;
        let (ours, rounds) = (self.map.as_ptr().addr() + start, 1 + which as u64 % 4);
        let over = AtomicBool::new(false);
        let over = &over;
        let value = |word: usize, round: u64| {
            let bytes = [0; 8].map(|_: u8| pattern(which + round as usize, word));
            u64::from_le_bytes(bytes) ^ round
        };
        let map = &self.map;
        std::thread::scope(|scope| {
            let told = Finally(|| over.store(true, Relaxed));
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    match which % 2 {
                        0 => map.flush_range(start, words * 8).unwrap(),
                        _ => map
                            .advise_range(Advice::PageOut, start & !(PAGE - 1), words * 8)
                            .unwrap(),
                    }
                }
            });
            let writers: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        for round in 0..rounds {
                            for word in (thread..words).step_by(threads) {
                                let at = (ours + word * 8) as *mut u64;
                                if round > 0 {
                                    // SAFETY: a word of the map that is this thread's.
                                    let seen = unsafe { at.read_volatile() };
                                    assert_eq!(seen, value(word, round - 1), "word {word}");
                                }
                                // SAFETY: as above.
                                unsafe { at.write_volatile(value(word, round)) };
                            }
                        }
                    })
                })
                .collect();
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            drop(told);
            ended.into_iter().for_each(|ended| ended.unwrap());
        });
        for word in 0..words {
            let bytes = value(word, rounds - 1).to_ne_bytes();
            self.other[start + word * 8..][..8].copy_from_slice(&bytes);
        }
        self.is_same(&self.map[start..start + words * 8], start, "threads");
    }

    /// A child of fork and its parent write at the same time, each to pages of its own, which lie between those of the other.
    /// The child by the map that it has of its parent, by an engine of its own, or by write(2).
    pub fn forks(&mut self, which: usize) {
        let pages = self.len / PAGE;
        if pages < 8 {
            return;
        }
        let mut draw = |parity: usize| {
            let stores = (0..12).map(|_| {
                let page = self.random.below(pages / 2) * 2 + parity;
                let from = self.random.below(PAGE);
                Store {
                    at: page * PAGE + from,
                    count: 1 + self.random.below(PAGE - from),
                    byte: self.random.below(256) as u8,
                }
            });
            stores.collect::<Vec<_>>()
        };
        let (own, childs) = (draw(0), draw(1));
        let (all, looks) = (pages * PAGE, draw(1));
        let child = child::start(|| {
            self.be_the_child(which, &childs, &looks);
            0
        });
        for (count, &store) in own.iter().enumerate() {
            store.to(&mut self.map);
            store.to(&mut self.other);
            match count {
                3 if which % 3 == 1 => self.map.flush().unwrap(),
                7 if which % 5 == 1 => self.page_out(&(0..all)),
                _ => {}
            }
        }
        assert_eq!(child::wait(child), 0, "the child of {which}");
        // The child's writes are seen when the page is read again.
        self.page_out(&(0..all));
        for store in childs.iter().chain(&own) {
            let page = store.at & !(PAGE - 1);
            self.is_same(&self.map[page..page + PAGE], page, "after a fork");
        }
    }

    fn be_the_child(&mut self, which: usize, stores: &[Store], looks: &[Store]) {
        // All that was written before is there. Of the pages that the parent does not write to.
        for look in looks {
            let part = look.at..look.at + look.count;
            self.is_same(&self.map[part], look.at, "the child's map");
        }
        match which % 4 {
            0 | 1 => {
                stores.iter().for_each(|store| store.to(&mut self.map));
                if which.is_multiple_of(4) {
                    self.map.flush().unwrap();
                }
            }
            2 => {
                let builder = builder(self.policies).coherence(Coherence::Engine);
                let engine = builder.build().unwrap();
                let mut map = write(&engine, &self.file);
                stores.iter().for_each(|store| store.to(&mut map));
                if which.is_multiple_of(8) {
                    map.flush().unwrap();
                }
            }
            _ => stores.iter().for_each(|store| {
                let bytes = vec![store.byte; store.count];
                self.file.write_all_at(&bytes, store.at as u64).unwrap();
            }),
        }
        stores.iter().for_each(|store| store.to(&mut self.other));
    }
}
