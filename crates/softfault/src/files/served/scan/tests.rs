//! A window whose reader goes on in order, with files on the disk, by the test's own thread where the order of steps matters.

use super::super::Served;
use super::{FIRST_SEGMENTS, MOST_SEGMENTS, SCAN_BYTES, SEGMENT};
use crate::map::Mmap;
use crate::signal;
use crate::uffd::REFUSED;
use crate::{Engine, Reads};
use softfault_engine::PAGE_SIZE;
use softfault_engine::cache::PageCache;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SEGMENTS: usize = 20;
const PAGES: usize = SEGMENTS * SEGMENT / PAGE_SIZE;
/// Pages of a segment.
const EACH: usize = SEGMENT / PAGE_SIZE;

/// Engines find scans by themselves: else the test begins them.
pub(super) static FINDS: AtomicBool = AtomicBool::new(false);

/// A page of a file: its number and the file's, from its first word to its last.
fn word(page: usize, salt: u64) -> u64 {
    (page as u64 + 1 + (salt << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A file that was written to the disk. `None`, and said, where no file without a name can be made.
fn numbered(salt: u64) -> Option<File> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE);
    let Ok(mut file) = options.open(std::env::temp_dir()) else {
        softfault_skip::skipped("kernel", "no files without a name");
        return None;
    };
    let mut segment = Vec::with_capacity(SEGMENT);
    for first in (0..PAGES).step_by(EACH) {
        segment.clear();
        for page in first..first + EACH {
            segment.extend(word(page, salt).to_ne_bytes().repeat(PAGE_SIZE / 8));
        }
        file.write_all(&segment).expect("written");
    }
    // A window is longer than its file, as most are.
    file.write_all(&[0; PAGE_SIZE]).expect("written");
    file.sync_all().expect("on the disk");
    Some(file)
}

/// By a descriptor that is open for reading only: others are the kernel's to map.
fn map_to_read(engine: &Engine, file: &File) -> Mmap {
    let file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("opened");
    // SAFETY: nobody writes to it.
    unsafe { engine.map(&file) }.expect("mapped")
}

struct Scene {
    engine: Engine,
    file: File,
    map: Mmap,
    cache: Arc<PageCache>,
    served: Arc<Served>,
    /// One test at a time, and the file of all of them.
    alone: MutexGuard<'static, Option<File>>,
}

impl Scene {
    /// A map of a file that does not fit in memory.
    fn new() -> Option<Self> {
        static ALONE: Mutex<Option<File>> = Mutex::new(None);
        let mut alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if alone.is_none() {
            *alone = numbered(0);
        }
        let file = alone.as_ref()?.try_clone().expect("the same file");
        FINDS.store(false, Ordering::Relaxed);
        let builder = Engine::builder().memory(8 * SCAN_BYTES);
        let engine = builder.reads(Reads::Auto).build().unwrap();
        engine.inner.managed().unwrap().reads.set_room(0);
        let map = map_to_read(&engine, &file);
        let (cache, served) = map.file().unwrap().parts();
        let shown = served.shown_file().cloned();
        let Some(shown) = shown.filter(|shown| shown.cached_in(0..1).is_some()) else {
            softfault_skip::skipped(
                "kernel",
                "cachestat(2) is not known, or faults are no signals",
            );
            return None;
        };
        let all = 0..(SEGMENTS * SEGMENT) as u64;
        shown.drop_from_page_cache(&all);
        if shown.cached_in(all) != Some(0) {
            softfault_skip::skipped("kernel", "the temporary directory is in memory");
            return None;
        }
        Some(Self {
            engine,
            file,
            map,
            cache,
            served,
            alone,
        })
    }

    /// The same, whose segments from one on the kernel serves.
    fn scanning(segment: usize) -> Option<Self> {
        Self::new().filter(|scene| scene.begin(segment))
    }

    /// Lets the kernel serve all segments from one on. False where it cannot.
    fn begin(&self, segment: usize) -> bool {
        self.served.state().scans.segments = MOST_SEGMENTS;
        let _masked = signal::masked();
        let policy = &self.engine.inner.managed().unwrap().reads;
        let begun = (self.served).begin_scan(&self.cache, (segment * SEGMENT) as u64, policy);
        if !begun {
            softfault_skip::skipped("kernel", "no huge pages in this kernel");
        }
        begun
    }

    fn follow(&self) -> bool {
        let _masked = signal::masked();
        self.served.follow_scan(&self.cache)
    }

    fn is_scanning(&self) -> bool {
        self.served.scan().is_some()
    }

    fn check(&self, page: usize) {
        check(&self.map, page, 0);
    }

    /// Touches all pages of a segment, in order.
    fn read(&self, segment: usize) {
        (segment * EACH..(segment + 1) * EACH).for_each(|page| self.check(page));
    }

    fn faults(&self) -> u64 {
        self.engine.stats().faults
    }

    /// Bytes of a segment that the page cache has.
    fn cached(&self, segment: usize) -> u64 {
        let part = (segment * SEGMENT) as u64..((segment + 1) * SEGMENT) as u64;
        let file = self.served.shown_file().unwrap();
        file.cached_in(part).unwrap()
    }

    /// Mappings of the kernel's in the window.
    fn mappings(&self) -> usize {
        let window = self.cache.addresses();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let starts = maps.lines().filter_map(|line| line.split_once('-'));
        let starts = starts.map(|(start, _)| usize::from_str_radix(start, 16).unwrap());
        starts.filter(|start| window.contains(start)).count()
    }
}

fn check(map: &Mmap, page: usize, salt: u64) {
    let bytes = &map[page * PAGE_SIZE..(page + 1) * PAGE_SIZE];
    let word = word(page, salt).to_ne_bytes();
    assert_eq!(bytes[..8], word, "page {page}");
    assert_eq!(bytes[PAGE_SIZE - 8..], word, "the end of page {page}");
}

#[test]
fn the_kernel_serves_a_segment_after_the_other() {
    let Some(scene) = Scene::scanning(2) else {
        return;
    };
    scene.read(0);
    scene.read(1);
    for segment in 2..SEGMENTS {
        let before = scene.faults();
        scene.read(segment);
        assert_eq!(
            scene.faults(),
            before,
            "segment {segment} is not the engine's"
        );
        assert!(scene.follow());
        if segment > 3 {
            // The one before the last is the engine's again, and out of the page cache.
            assert_eq!(scene.cached(segment - 2), 0, "segment {}", segment - 2);
            scene.check((segment - 2) * EACH + segment);
            assert_eq!(scene.faults(), before + 1);
        }
    }
    // What was taken back is one mapping, between two of the window's first kind, and one of the segments that are shown; and its last page.
    assert_eq!(scene.mappings(), 4);
    // All of it once more, by whoever serves it.
    (0..SEGMENTS).for_each(|segment| scene.read(segment));
}

/// The kernel reads no more ahead of what was seen than was read in order before.
#[test]
fn a_scan_is_as_long_as_what_was_read_in_order() {
    let Some(scene) = Scene::scanning(0) else {
        return;
    };
    let mut from = 0;
    for segments in [FIRST_SEGMENTS, 2 * FIRST_SEGMENTS] {
        if from == 0 {
            let _masked = signal::masked();
            let state = scene.served.state();
            let scan = state.scans.now.clone().unwrap();
            drop(scene.served.end_scan(state, &scene.cache, &scan));
        }
        assert!(scene.begin_anyway(from));
        let before = scene.faults();
        (from..from + segments).for_each(|segment| {
            scene.read(segment);
            scene.follow();
        });
        assert_eq!(scene.faults(), before);
        scene.read(from + segments);
        assert!(scene.faults() > before, "the next one is the engine's");
        assert!(scene.is_scanning());
        from += segments + 1;
    }
    assert_eq!(scene.served.state().scans.segments, 2 * FIRST_SEGMENTS);
}

#[test]
fn few_segments_are_shown_at_a_time() {
    let Some(scene) = Scene::scanning(0) else {
        return;
    };
    (0..4).for_each(|segment| scene.check(segment * EACH));
    assert_eq!(scene.faults(), 0);
    // Another reader, far in front.
    scene.check(9 * EACH);
    assert_eq!(scene.faults(), 1);
    // Nobody takes any back: the engine serves the next.
    scene.check(4 * EACH);
    assert_eq!(scene.faults(), 2);
    scene.follow();
    // The reader has gone on meanwhile. What it has left out stays the engine's.
    scene.check(9 * EACH + 1);
    assert_eq!(scene.faults(), 2);
    scene.check(5 * EACH);
    assert_eq!(scene.faults(), 3);
    scene.check(10 * EACH);
    assert_eq!(scene.faults(), 3);
    scene.follow();
    // It finds pages of two segments that it has touched before; and the other one is far in front again.
    scene.check(16 * EACH);
    assert_eq!(scene.faults(), 4);
    scene.check(13 * EACH);
    assert_eq!(scene.faults(), 4);
}

#[test]
fn a_call_that_holds_the_window_ends_it() {
    let Some(scene) = Scene::scanning(0) else {
        return;
    };
    scene.check(0);
    scene.check(EACH);
    let shown = EACH * PAGE_SIZE..(EACH + 2) * PAGE_SIZE;
    let pinned = scene.map.pin(shown.clone()).unwrap();
    assert!(!scene.is_scanning());
    assert_eq!(
        scene.map[shown.start..shown.start + 8],
        word(EACH, 0).to_ne_bytes()
    );
    let before = scene.faults();
    scene.check(2 * EACH);
    assert_eq!(scene.faults(), before + 1);
    // And there is none while it is held, nor soon after.
    assert!(!scene.served.may_scan());
    drop(pinned);
    (0..SEGMENTS).for_each(|segment| scene.read(segment));
}

#[test]
fn its_memory_is_charged_until_it_ends() {
    let Some(scene) = Scene::new() else { return };
    let node = scene.cache.node().clone();
    let before = node.budget.charged();
    if !scene.begin(0) {
        return;
    }
    assert!(node.budget.charged() >= before + (SCAN_BYTES / PAGE_SIZE) as u64);
    scene.check(0);
    // The reader goes elsewhere. It is over after a while, and not before.
    while scene.follow() {
        assert!(node.budget.charged() >= before + (SCAN_BYTES / PAGE_SIZE) as u64);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!scene.is_scanning());
    assert!(node.budget.held() < (SCAN_BYTES / PAGE_SIZE) as u64);
    let faults = scene.faults();
    scene.check(0);
    assert_eq!(scene.faults(), faults + 1);
}

/// Failed before: the memory of a scan is held, so the budget could not be lowered; and where it could be, the scan went on.
#[test]
fn a_lower_budget_ends_it() {
    for budget in [32 << 20, 2 * SCAN_BYTES] {
        let Some(scene) = Scene::scanning(0) else {
            return;
        };
        scene.check(0);
        scene.engine.set_memory(budget).unwrap();
        assert!(!scene.is_scanning());
        assert!(!scene.begin_anyway(0));
        scene.check(1);
        assert_eq!(scene.faults(), 1);
    }
    let Some(scene) = Scene::scanning(0) else {
        return;
    };
    scene.check(0);
    let node = scene.cache.node();
    node.set_memory(2 * SCAN_BYTES).unwrap();
    assert!(!scene.follow() && !scene.is_scanning());
}

#[test]
fn a_segment_that_the_page_cache_had_stays_there() {
    use std::os::unix::fs::FileExt;
    let Some(scene) = Scene::new() else { return };
    // A descriptor of its own, by which the kernel reads nothing ahead: the next segment is not in the page cache, at any `read_ahead_kb`.
    let file = File::open(format!("/proc/self/fd/{}", scene.file.as_raw_fd())).unwrap();
    // SAFETY: no memory is involved.
    let advised = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    assert_eq!(advised, 0);
    let mut bytes = vec![0; SEGMENT];
    file.read_exact_at(&mut bytes, 4 * SEGMENT as u64).unwrap();
    if !scene.begin(0) {
        return;
    }
    for segment in 0..8 {
        scene.read(segment);
        scene.follow();
    }
    let stays: Vec<_> = (0..6)
        .filter(|&segment| scene.cached(segment) > 0)
        .collect();
    assert_eq!(stays, [4]);
}

/// Dropped with segments that are shown: the next window at its addresses is another's. Failed before: of a file that does not end where
/// its window does, the scan went on in that one.
#[test]
fn a_window_goes_with_its_scan() {
    let Some(scene) = Scene::scanning(0) else {
        return;
    };
    scene.check(0);
    scene.check(EACH);
    let Scene {
        engine,
        file: _,
        map,
        cache,
        served,
        alone: _alone,
    } = scene;
    let window = cache.addresses();
    drop(map);
    // A thread that was about to begin another one comes late.
    let policy = &engine.inner.managed().unwrap().reads;
    {
        let _masked = signal::masked();
        let state = served.state();
        let scan = state.scans.now.clone().unwrap();
        drop(served.end_scan(state, &cache, &scan));
        drop(scan);
        assert!(served.begin_scan(&cache, 0, policy));
    }
    drop(cache);
    engine.close_idle();
    assert_eq!(engine.stats().windows, 0);
    let file = numbered(1).unwrap();
    let map = map_to_read(&engine, &file);
    println!("at {:x?}, before {window:x?}", map.as_ptr_range());
    for page in (0..PAGES).step_by(EACH / 2) {
        check(&map, page, 1);
    }
    drop(served);
    (0..PAGES).for_each(|page| check(&map, page, 1));
}

/// A segment that the kernel cannot give back is an error of calls, and of no touch; later all is well.
#[test]
fn a_refused_end_is_an_error_for_a_while() {
    let Some(scene) = Scene::scanning(0) else {
        return;
    };
    scene.check(0);
    let part = 0..2 * PAGE_SIZE;
    REFUSED.set(true);
    let refused = scene.map.pin(part.clone());
    assert!(refused.is_err());
    drop(refused);
    scene.check(1);
    scene.check(EACH);
    assert!(scene.is_scanning());
    {
        let _masked = signal::masked();
        assert_eq!(scene.served.show(&scene.cache, false), Ok(false));
    }
    REFUSED.set(false);
    let pinned = scene.map.pin(part).unwrap();
    assert!(!scene.is_scanning());
    assert_eq!(pinned[..8], word(0, 0).to_ne_bytes());
    drop(pinned);
    (0..SEGMENTS).for_each(|segment| scene.read(segment));
}

/// The kernel cannot read a segment: its touches come to us, and end the scan.
#[test]
fn a_segment_that_the_kernel_cannot_read_is_the_engines() {
    let Some(scene) = Scene::scanning(0) else {
        return;
    };
    scene.check(0);
    let (mmu, window) = (
        crate::process::get().unwrap().mmu(),
        scene.cache.addresses(),
    );
    {
        let _masked = signal::masked();
        for _ in 0..1000 {
            mmu.note_unmappable(window.end - PAGE_SIZE);
        }
    }
    assert!(scene.follow(), "no segment of its");
    let mut goes_on = true;
    for _ in 0..1000 {
        let _masked = signal::masked();
        mmu.note_unmappable(window.start);
        goes_on = scene.served.follow_scan(&scene.cache);
        if !goes_on {
            break;
        }
    }
    assert!(!goes_on && !scene.is_scanning());
    let before = scene.faults();
    scene.check(0);
    assert_eq!(scene.faults(), before + 1);
}

/// A shared writable map of the file begins: the kernel serves all of the window.
#[test]
fn a_writer_ends_it() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    // It changes the file.
    *scene.alone = None;
    if !scene.begin(0) {
        return;
    }
    scene.check(0);
    scene.check(EACH);
    // SAFETY: this test alone has the file.
    let mut writer = unsafe { scene.engine.map_mut(&scene.file) }.unwrap();
    assert!(!scene.is_scanning());
    for page in [0, EACH, 2 * EACH] {
        writer[page * PAGE_SIZE..][..8].copy_from_slice(b"changed!");
        assert_eq!(scene.map[page * PAGE_SIZE..][..8], *b"changed!");
    }
}

/// Every byte is right while segments come and go: for the reader, for others anywhere, and for calls.
#[test]
fn readers_see_the_file_at_any_moment() {
    let Some(scene) = Scene::new() else { return };
    let over = AtomicBool::new(false);
    let (scene, over) = (&scene, &over);
    std::thread::scope(|scope| {
        for seed in 1..3usize {
            scope.spawn(move || {
                let mut at = seed;
                while !over.load(Ordering::Relaxed) {
                    at = at
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1442695040888963407);
                    scene.check((at >> 33) % PAGES);
                }
            });
        }
        scope.spawn(move || {
            let mut bytes = vec![0; 3 * PAGE_SIZE];
            for at in 0.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let page = at * 7919 % (PAGES - 3);
                match at % 3 {
                    0 => {
                        let read = scene.map.read_at(&mut bytes, page * PAGE_SIZE).unwrap();
                        assert_eq!(
                            (read, &bytes[..8]),
                            (3 * PAGE_SIZE, &word(page, 0).to_ne_bytes()[..])
                        );
                    }
                    1 => scene.map.invalidate(..).unwrap(),
                    _ => {
                        let pinned = scene.map.pin(page * PAGE_SIZE..(page + 2) * PAGE_SIZE);
                        scene.check(page);
                        drop(pinned);
                    }
                }
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
        });
        for round in 0..12 {
            let mut state = scene.served.state();
            (state.scans.not_before, state.scans.segments) = (None, 1 + round);
            drop(state);
            scene.begin_anyway(round % 3);
            for segment in 0..SEGMENTS {
                scene.read(segment);
                scene.follow();
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    println!(
        "served by segments: {} bytes",
        scene.engine.stats().kernel.scanned_bytes
    );
}

impl Scene {
    /// As `begin`, where somebody may hold the window.
    fn begin_anyway(&self, segment: usize) -> bool {
        let _masked = signal::masked();
        let policy = &self.engine.inner.managed().unwrap().reads;
        (self.served).begin_scan(&self.cache, (segment * SEGMENT) as u64, policy)
    }
}

/// A child of fork has the whole file, whoever served its parent.
#[test]
fn a_child_has_all_of_it() {
    let Some(scene) = Scene::scanning(0) else {
        return;
    };
    scene.check(0);
    scene.check(EACH);
    // SAFETY: the child touches the map, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let pages = (0..PAGES).step_by(EACH / 4);
        let is_right =
            |page: usize| scene.map[page * PAGE_SIZE..][..8] == word(page, 0).to_ne_bytes();
        let code = i32::from(!pages.into_iter().all(is_right));
        // SAFETY: nothing of the parent's is run.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: fills the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's end");
    scene.check(2 * EACH);
    assert_eq!(scene.faults(), 0);
    (0..SEGMENTS).for_each(|segment| scene.read(segment));
}

/// Nobody drives it here: the engine finds out by itself that the file is read in order.
#[test]
fn a_reader_in_order_is_found() {
    let Some(scene) = Scene::new() else { return };
    FINDS.store(true, Ordering::Relaxed);
    let before = scene.engine.stats().kernel.scanned_bytes;
    let enough = before + 4 * SEGMENT as u64;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
    while scene.engine.stats().kernel.scanned_bytes < enough {
        assert!(std::time::Instant::now() < deadline, "never");
        (0..SEGMENTS).for_each(|segment| scene.read(segment));
    }
}
