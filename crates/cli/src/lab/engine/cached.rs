//! A program that reads by itself: a cache of the budget's size over O_DIRECT reads. Bytes are reached by
//! calls; the last reads stay, by the clock.

use super::{Anonymous, Engine, Mapping};
use crate::lab::block::{Block, open_direct};
use crate::lab::fill::PAGE;
use crate::lab::stats::EngineStats;
use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Pages that are read at once and kept together: as many as `pread` reads at once in a thrash.
const BLOCK_PAGES: usize = 32;
const BLOCK_BYTES: usize = BLOCK_PAGES * PAGE as usize;
/// Parts with a lock each, where there are blocks enough.
const SHARDS: usize = 64;
/// Blocks that a shard has at least.
const LEAST_BLOCKS: usize = 8;

/// A cache of `memory` bytes.
pub fn build(memory: u64) -> Box<dyn Engine> {
    Box::new(Cached(Arc::new(Cache::new(memory))))
}

struct Cached(Arc<Cache>);

impl Engine for Cached {
    fn map(&self, file: &File) -> io::Result<Box<dyn Mapping>> {
        let opened = open_direct(&format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let file = opened.map_or_else(|| file.try_clone(), Ok)?;
        let about = file.metadata()?;
        Ok(Box::new(CachedFile {
            cache: self.0.clone(),
            number: (about.dev(), about.ino()),
            file,
        }))
    }

    fn map_anonymous(&self, _: usize) -> io::Result<Box<dyn Anonymous>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn stats(&self) -> Option<EngineStats> {
        None
    }
}

/// A file, and the place of its cached bytes. Immutable.
struct CachedFile {
    cache: Arc<Cache>,
    number: (u64, u64),
    file: File,
}

impl Mapping for CachedFile {
    fn bytes(&self) -> Option<&[u8]> {
        None
    }

    fn read_at(&self, mut offset: usize, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let within = offset % BLOCK_BYTES;
            let count = buffer.len().min(BLOCK_BYTES - within);
            let (part, rest) = buffer.split_at_mut(count);
            let first = (offset - within) as u64;
            let key = (self.number, first);
            self.cache.with(
                key,
                |block| part.copy_from_slice(&Block::bytes(block)[within..within + count]),
                |block| fill(&self.file, first, Block::bytes_mut(block)),
            )?;
            (offset, buffer) = (offset + count, rest);
        }
        Ok(())
    }
}

/// Reads a block, which the file's end may cut short.
fn fill(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(())
}

/// Which file, and from which byte on.
type Key = ((u64, u64), u64);

struct Cache {
    shards: Vec<Shard>,
    /// Which shard a block is in.
    hasher: RandomState,
}

struct Shard {
    slots: Mutex<Slots>,
    /// A read has ended: a slot may be free.
    ended: Condvar,
}

/// Protected by `Shard::slots`.
struct Slots {
    all: Vec<Slot>,
    places: HashMap<Key, usize>,
    hand: usize,
}

#[derive(Default)]
struct Slot {
    key: Option<Key>,
    block: Vec<Block>,
    /// Touched since the hand came by.
    used: bool,
    /// The reading thread has the block.
    reading: bool,
}

impl Cache {
    fn new(memory: u64) -> Self {
        let blocks = (memory as usize / BLOCK_BYTES).max(1);
        let shards = SHARDS.min(blocks / LEAST_BLOCKS).max(1);
        let shard = || Shard {
            slots: Mutex::new(Slots {
                all: (0..blocks / shards).map(|_| Slot::default()).collect(),
                places: HashMap::new(),
                hand: 0,
            }),
            ended: Condvar::new(),
        };
        Self {
            shards: (0..shards).map(|_| shard()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Looks at a block; reads it first where it is not there, with no lock held.
    fn with(
        &self,
        key: Key,
        look: impl FnOnce(&[Block]),
        read: impl FnOnce(&mut [Block]) -> io::Result<()>,
    ) -> io::Result<()> {
        let shard = &self.shards[self.hasher.hash_one(key) as usize % self.shards.len()];
        let mut slots = shard.lock();
        let place = loop {
            if let Some(&place) = slots.places.get(&key) {
                let slot = &mut slots.all[place];
                slot.used = true;
                look(&slot.block);
                return Ok(());
            }
            match slots.evict() {
                Some(place) => break place,
                None => slots = shard.ended.wait(slots).expect("no thread panics here"),
            }
        };
        let mut block = std::mem::take(&mut slots.all[place].block);
        drop(slots);
        block.resize(BLOCK_PAGES, Block::default());
        let done = read(&mut block);
        if done.is_ok() {
            look(&block);
        }
        let mut slots = shard.lock();
        // Another thread may have read the same meanwhile: one of them is enough.
        let keeps = done.is_ok() && !slots.places.contains_key(&key);
        if keeps {
            slots.places.insert(key, place);
        }
        slots.all[place] = Slot {
            key: keeps.then_some(key),
            block,
            used: keeps,
            reading: false,
        };
        shard.ended.notify_one();
        done
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().expect("no thread panics here")
    }
}

impl Slots {
    /// Takes a slot that was not touched lately; `None` if all are being read into.
    fn evict(&mut self) -> Option<usize> {
        for _ in 0..2 * self.all.len() {
            let place = self.hand;
            self.hand = (place + 1) % self.all.len();
            let slot = &mut self.all[place];
            if slot.reading || std::mem::take(&mut slot.used) {
                continue;
            }
            slot.reading = true;
            if let Some(key) = slot.key.take() {
                self.places.remove(&key);
            }
            return Some(place);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_last_reads_stay_within_the_room() {
        let cache = Cache::new(4 * BLOCK_BYTES as u64);
        let reads = AtomicUsize::new(0);
        let touch = |number: u64| {
            let mut found = 0;
            let read = |block: &mut [Block]| {
                reads.fetch_add(1, Ordering::Relaxed);
                block[0].set_word(0, number);
                Ok(())
            };
            let look = |block: &[Block]| found = block[0].word(0);
            cache.with(((0, 0), number), look, read).unwrap();
            assert_eq!(found, number);
            reads.load(Ordering::Relaxed)
        };
        for number in 0..4 {
            assert_eq!(touch(number) as u64, number + 1);
        }
        assert_eq!((0..4).map(touch).max(), Some(4));
        assert_eq!(touch(4), 5);
        let kept = cache.shards[0].lock().places.len();
        assert_eq!((cache.shards.len(), kept), (1, 4));
    }

    #[test]
    fn threads_read_right_beside_each_other_and_errors_keep_nothing() {
        let cache = Cache::new(2 * BLOCK_BYTES as u64);
        let wrong = |_: &mut [Block]| Err(io::ErrorKind::Other.into());
        assert!(cache.with(((1, 1), 0), |_| (), wrong).is_err());
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..500 {
                        let number = (thread + round) % 5;
                        let look = |block: &[Block]| assert_eq!(block[1].word(7), number);
                        let read = |block: &mut [Block]| {
                            block[1].set_word(7, number);
                            Ok(())
                        };
                        cache.with(((0, 0), number), look, read).unwrap();
                    }
                });
            }
        });
    }
}
