//! A file after the machine has crashed: the device keeps its writes in a cache that forgets all that
//! was not synced. Cut after every write and every sync, with any part of the cache's writes kept.

use softfault_engine::cache::PageCache;
use softfault_engine::store::{PageWrite, StoreError, WriteBack};
use softfault_engine::{PAGE_SIZE, Store};
use softfault_oracle::{Random, Rig};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const EIO: i32 = 5;
const PAGES: usize = 1500;
/// The unit that a device writes at once.
const SECTOR: usize = 512;
const SECTORS: usize = PAGE_SIZE / SECTOR;

/// The first word of each sector.
type Words = [u64; SECTORS];

/// The requests to a device, in order.
enum Event {
    Write(usize, Words),
    Sync,
    /// A flush has returned: it vouches for each page as it was when it was called.
    Flushed(Vec<u64>),
}

struct Device {
    pages: Vec<Words>,
    log: Vec<Event>,
    /// Writes and syncs until one fails.
    fails_in: u32,
}

/// A store over it.
struct Volatile(Mutex<Device>);

impl Device {
    fn fails(&mut self) -> Result<(), StoreError> {
        self.fails_in = self.fails_in.wrapping_sub(1);
        match self.fails_in {
            0 => Err(StoreError::Io(EIO)),
            _ => Ok(()),
        }
    }
}

impl Store for Volatile {
    fn len(&self) -> Result<u64, StoreError> {
        Ok((PAGES * PAGE_SIZE) as u64)
    }

    unsafe fn read(&self, offset: u64, buffer: *mut u8, bytes: usize) -> Result<usize, StoreError> {
        let device = self.0.lock().unwrap();
        for page in 0..bytes / PAGE_SIZE {
            for (sector, word) in device.pages[offset as usize / PAGE_SIZE + page]
                .iter()
                .enumerate()
            {
                let at = page * PAGE_SIZE + sector * SECTOR;
                // SAFETY: within the caller's buffer.
                unsafe { buffer.add(at).cast::<u64>().write(*word) };
            }
        }
        Ok(bytes)
    }
}

impl WriteBack for Volatile {
    unsafe fn write(&self, pages: &mut [PageWrite], _end: u64) {
        for write in pages {
            let mut device = self.0.lock().unwrap();
            write.result = device.fails();
            if write.result.is_err() {
                continue;
            }
            // SAFETY: readable, as the caller has promised.
            let word = |sector| unsafe { write.page.add(sector * SECTOR).cast::<u64>().read() };
            let (page, words) = (
                write.offset as usize / PAGE_SIZE,
                core::array::from_fn(word),
            );
            device.pages[page] = words;
            device.log.push(Event::Write(page, words));
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        let mut device = self.0.lock().unwrap();
        device.fails()?;
        device.log.push(Event::Sync);
        Ok(())
    }

    fn is_reserved(&self, _offset: u64) -> bool {
        true
    }

    fn reserve(&self, _offset: u64) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Stores, flushes and evictions beside them; then every cut.
fn run(seed: u64) {
    let mut random = Random::new(seed);
    let store = Arc::new(Volatile(Mutex::new(Device {
        pages: vec![[0; SECTORS]; PAGES],
        log: Vec::new(),
        fails_in: 0,
    })));
    let rig = Arc::new(Rig::new(2048));
    let stores: (Arc<dyn Store>, Arc<dyn WriteBack>) = (store.clone(), store.clone());
    let bytes = (PAGES * PAGE_SIZE) as u64;
    let cache = PageCache::new_writable(rig.node.clone(), stores, bytes).unwrap();
    rig.map_window(&cache);
    let start = cache.addresses().start;
    let over = Arc::new(AtomicBool::new(false));
    let evicts = {
        let (rig, over) = (rig.clone(), over.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                rig.node.reclaim(16);
                match seed % 2 {
                    0 => std::thread::yield_now(),
                    // Flushes are to have something left to write.
                    _ => std::thread::sleep(Duration::from_micros(200)),
                }
            }
        })
    };
    let (mut versions, mut seen, mut flushed) = (vec![0; PAGES], 0, 0);
    for version in 1..=600_u64 {
        let page = random.below(PAGES);
        for sector in 0..SECTORS {
            let addr = start + page * PAGE_SIZE + sector * SECTOR;
            rig.write(addr, &version.to_ne_bytes()).unwrap();
        }
        versions[page] = version;
        match random.below(16) {
            0 => {
                let covered = versions.clone();
                let mut cursor = cache.write_back_of(cache.addresses());
                while cache.write_back(&mut cursor) {}
                cache.sync();
                if cache.write_error_since(&mut seen).is_none() {
                    store.0.lock().unwrap().log.push(Event::Flushed(covered));
                    flushed += 1;
                }
            }
            1 => store.0.lock().unwrap().fails_in = 1 + random.below(60) as u32,
            _ => {}
        }
    }
    over.store(true, Ordering::Relaxed);
    evicts.join().unwrap();
    let device = store.0.lock().unwrap();
    check_cuts(&device.log, &mut random);
    drop(device);
    assert!(flushed > 5, "{flushed}");
    rig.unmap(cache.addresses());
    drop(cache);
    Arc::into_inner(rig).unwrap().finish();
}

/// With any part of the cache that survives a cut: no sector is older than the last flush.
fn check_cuts(log: &[Event], random: &mut Random) {
    let mut durable = vec![[0; SECTORS]; PAGES];
    let mut covered = vec![0; PAGES];
    let mut cache: Vec<(usize, Words)> = Vec::new();
    for (cut, event) in log.iter().enumerate() {
        match event {
            Event::Write(page, words) => cache.push((*page, *words)),
            Event::Sync => {
                let cached = cache.drain(..);
                cached.for_each(|(page, words)| durable[page] = words);
            }
            Event::Flushed(versions) => covered.clone_from(versions),
        }
        let mut left = durable.clone();
        for (page, words) in &cache {
            let survives = random.below(1 << SECTORS);
            for sector in (0..SECTORS).filter(|sector| survives >> sector & 1 == 1) {
                left[*page][sector] = words[sector];
            }
        }
        for (page, words) in left.iter().enumerate() {
            let oldest = *words.iter().min().unwrap();
            assert!(
                oldest >= covered[page],
                "cut {cut}: page {page} is {words:?}, {} was flushed",
                covered[page]
            );
        }
    }
}

#[test]
fn flushed_stores_survive_every_cut() {
    (1..=16).for_each(run);
}
