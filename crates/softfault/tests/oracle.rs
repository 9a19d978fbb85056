//! Random operations on softfault's maps and on the kernel's of the same file:
//! both must show the model's bytes.

use proptest::prelude::*;
use softfault::policy::Policies;
use softfault::{Advice, AsyncReads, Engine, FaultError, Mmap, MmapOptions, Pinned};
use softfault_oracle::{MapAdvice, Model, Op, Setting, Touched, World, any_op, byte_at};
use softfault_oracle::{any_policies, cases, play};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;

struct Softfault {
    engine: Engine,
    file: File,
    /// Dropped before the maps, which they borrow from.
    pins: BTreeMap<usize, Pinned<'static>>,
    maps: BTreeMap<usize, Arc<Mmap>>,
    /// Where in the file the maps begin.
    offsets: BTreeMap<usize, u64>,
    most: u64,
}

impl Softfault {
    fn range(bytes: &Range<u64>) -> Range<usize> {
        bytes.start as usize..bytes.end as usize
    }
}

impl World for Softfault {
    fn map(&mut self, map: usize, offset: u64, len: u64) {
        let mut options = MmapOptions::new();
        options.offset(offset).len(len as usize);
        // SAFETY: only `truncate` changes the file, through the engine.
        let made = unsafe { options.map_in(&self.engine, &self.file) };
        self.maps.insert(map, Arc::new(made.unwrap()));
        self.offsets.insert(map, offset);
    }

    fn unmap(&mut self, map: usize) {
        self.maps.remove(&map).unwrap();
    }

    fn read(&self, map: usize, at: u64, bytes: &mut [u8]) -> Touched {
        let offset = self.offsets[&map] + at;
        let map = &self.maps[&map];
        let range = at as usize..at as usize + bytes.len();
        // Bytes at which a touch would raise SIGBUS are an error of a pin.
        match map.pin(range.clone()) {
            Ok(pinned) if bytes.len() > 512 => bytes.copy_from_slice(&pinned),
            Ok(_) => {
                for (place, byte) in bytes.iter_mut().enumerate() {
                    // SAFETY: within the map; it was there just now, so it
                    // comes back if it was evicted.
                    *byte = unsafe { map.as_ptr().add(range.start + place).read_volatile() };
                }
            }
            // Too much is pinned already: a plain touch, if it may be made.
            Err(FaultError::NoMemory) => {
                let len = self.file.metadata().unwrap().len();
                if offset >= len.next_multiple_of(PAGE) {
                    return Touched::Beyond;
                }
                bytes.copy_from_slice(&map[range]);
            }
            Err(FaultError::BeyondEnd) => return Touched::Beyond,
            Err(error) => panic!("{error:?}"),
        }
        Touched::Done
    }

    fn truncate(&mut self, len: u64) {
        self.engine.truncate(&self.file, len).unwrap();
    }

    fn answers_errors(&self) -> bool {
        true
    }

    fn advise(&mut self, map: usize, bytes: Range<u64>, advice: MapAdvice) {
        let advice = match advice {
            MapAdvice::Normal => Advice::Normal,
            MapAdvice::Random => Advice::Random,
            MapAdvice::Sequential => Advice::Sequential,
            MapAdvice::WillNeed => Advice::WillNeed,
        };
        let (at, len) = (bytes.start as usize, (bytes.end - bytes.start) as usize);
        self.maps[&map].advise_range(advice, at, len).unwrap();
    }

    fn pin(&mut self, map: usize, bytes: Range<u64>) -> Option<Vec<u8>> {
        let held = self.maps[&map].clone();
        // SAFETY: the map outlives the pin: it goes after `unpin`, and is in
        // an Arc, which does not move.
        let held: &'static Mmap = unsafe { &*Arc::as_ptr(&held) };
        match held.pin(Self::range(&bytes)) {
            Ok(pinned) => {
                let found = pinned.to_vec();
                self.pins.insert(map, pinned);
                Some(found)
            }
            Err(FaultError::NoMemory) => None,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn unpin(&mut self, map: usize) {
        self.pins.remove(&map);
    }

    fn prefetch(&mut self, map: usize, bytes: Range<u64>) {
        self.maps[&map].prefetch(Self::range(&bytes)).unwrap();
    }

    fn invalidate(&mut self, map: usize, bytes: Range<u64>) {
        self.maps[&map].invalidate(Self::range(&bytes)).unwrap();
    }

    fn set_memory(&mut self, bytes: u64) {
        self.most = self.most.max(bytes);
        self.engine.set_memory(bytes as usize).unwrap();
    }

    fn evict(&mut self) {
        for map in self.maps.values() {
            map.invalidate(..).unwrap();
        }
    }

    fn check(&self) {
        let stats = self.engine.stats();
        assert!(stats.peak_bytes <= self.most, "{stats:?}");
    }
}

/// The kernel's maps of the same file.
struct Kernel {
    file: File,
    /// Address and bytes of the mapping, and of the map's first byte in it.
    maps: BTreeMap<usize, (usize, usize, usize)>,
}

impl World for Kernel {
    fn map(&mut self, map: usize, offset: u64, len: u64) {
        let skip = offset % PAGE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let addr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                (len + skip) as usize,
                libc::PROT_READ,
                libc::MAP_SHARED,
                self.file.as_raw_fd(),
                (offset - skip) as libc::off_t,
            )
        };
        assert_ne!(addr, libc::MAP_FAILED);
        let place = (addr as usize, (len + skip) as usize, skip as usize);
        self.maps.insert(map, place);
    }

    fn unmap(&mut self, map: usize) {
        let (addr, bytes, _) = self.maps.remove(&map).unwrap();
        // SAFETY: mapped above, and nobody has a reference.
        unsafe { libc::munmap(addr as *mut libc::c_void, bytes) };
    }

    fn read(&self, map: usize, at: u64, bytes: &mut [u8]) -> Touched {
        let (addr, _, skip) = self.maps[&map];
        let source = (addr + skip + at as usize) as *const u8;
        for (place, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: within the mapping, and within the file as it is now.
            *byte = unsafe { source.add(place).read_volatile() };
        }
        Touched::Done
    }

    /// The other world has done it: it is the same file.
    fn truncate(&mut self, _len: u64) {}
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let left: Vec<_> = self.maps.keys().copied().collect();
        for map in left {
            self.unmap(map);
        }
    }
}

/// A file as the setting says; its name is gone already.
fn made_file(setting: &Setting) -> File {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = format!("oracle-{}-{number}", std::process::id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true);
    let file = file.open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(setting.file_bytes).unwrap();
    let is_hole = |page| setting.holes.iter().any(|hole| hole.contains(&page));
    let mut buffer = Vec::new();
    let mut from = 0;
    for page in 0..setting.file_bytes.div_ceil(PAGE) {
        if is_hole(page) {
            file.write_all_at(&buffer, from).unwrap();
            buffer.clear();
            from = (page + 1) * PAGE;
            continue;
        }
        let end = ((page + 1) * PAGE).min(setting.file_bytes);
        buffer.extend((page * PAGE..end).map(|at| byte_at(setting.seed, at)));
    }
    file.write_all_at(&buffer, from).unwrap();
    file
}

fn any_setting() -> impl Strategy<Value = Setting> {
    let holes = proptest::collection::vec((0..4000u64, 1..900u64), 0..4);
    let bytes = prop_oneof![1..200_000u64, 8_000_000..16_000_000u64];
    (bytes, holes, any::<u8>()).prop_map(|(file_bytes, holes, seed)| Setting {
        file_bytes,
        holes: holes.into_iter().map(|(at, len)| at..at + len).collect(),
        seed: u64::from(seed),
        memory: 8 << 20,
    })
}

fn config(count: u32) -> ProptestConfig {
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/oracle.txt"
    );
    ProptestConfig {
        max_shrink_iters: 300,
        ..cases(kept, count)
    }
}

/// Plays the operations, a map of the whole file first.
fn run(setting: Setting, reads: AsyncReads, policies: Policies, ops: Vec<Op>) {
    let file = made_file(&setting);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(setting.memory as usize)
        .async_reads(reads)
        .policies(policies)
        .build()
        .unwrap();
    let mut softfault = Softfault {
        engine,
        file: file.try_clone().unwrap(),
        pins: BTreeMap::new(),
        maps: BTreeMap::new(),
        offsets: BTreeMap::new(),
        most: setting.memory,
    };
    let mut kernel = Kernel {
        file,
        maps: BTreeMap::new(),
    };
    let whole = Op::Map { offset: 0, len: 0 };
    let ops: Vec<_> = std::iter::once(whole).chain(ops).collect();
    play(
        &mut Model::new(setting),
        &mut [&mut softfault, &mut kernel],
        &ops,
    );
}

proptest! {
    #![proptest_config(config(120))]

    #[test]
    fn both_show_the_same(
        setting in any_setting(),
        reads in prop_oneof![
            Just(AsyncReads::IoSubmit),
            Just(AsyncReads::IoUring),
            Just(AsyncReads::Never),
        ],
        ops in proptest::collection::vec(any_op(), 1..60),
    ) {
        run(setting, reads, Policies::default(), ops);
    }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn both_show_the_same_under_every_policy(
        setting in any_setting(),
        reads in prop_oneof![Just(AsyncReads::IoSubmit), Just(AsyncReads::Never)],
        policies in any_policies(),
        ops in proptest::collection::vec(any_op(), 1..60),
    ) {
        run(setting, reads, policies, ops);
    }
}
