//! A map is never longer than its window, also when the file changes meanwhile.

use super::{Mmap, MmapKind};
use crate::MmapOptions;
use crate::files::Look;
use crate::table::scratch::Scratch;
use crate::{Engine, signal};
use softfault_engine::fault::{self, FaultFlags, NeverInterrupted};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: u64 = 4096;

fn file(bytes: u64) -> File {
    let file = Scratch::new(&[]).to_write();
    file.set_len(bytes).unwrap();
    file
}

#[track_caller]
fn fits(map: &Mmap) {
    if let MmapKind::Managed(file) = &map.kind {
        let window = file.cache().addresses();
        assert!(window.start <= map.start && map.start + map.len <= window.end);
    } else {
        assert_eq!(map.len, 0);
    }
}

#[test]
fn a_map_is_as_long_as_the_file_that_its_window_was_made_of() {
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .build()
        .unwrap();
    let file = file(64 * PAGE);
    let looked = Look::to_map(file.as_fd()).unwrap();
    let managed = engine.inner.managed().unwrap();
    let open = |options: &MmapOptions| {
        let _masked = signal::masked();
        options.of_window(&engine, managed, file.as_fd(), &looked)
    };
    file.set_len(PAGE).unwrap();
    let map = open(&MmapOptions::new()).unwrap();
    assert_eq!(map.len, PAGE as usize);
    fits(&map);
    drop(map);
    let past = open(MmapOptions::new().len(64 * PAGE as usize)).unwrap_err();
    assert_eq!(past.kind(), std::io::ErrorKind::InvalidData);
    let past = open(MmapOptions::new().offset(2 * PAGE)).unwrap_err();
    assert_eq!(past.kind(), std::io::ErrorKind::InvalidData);
    file.set_len(0).unwrap();
    assert_eq!(open(&MmapOptions::new()).unwrap().len, 0);
    assert_eq!(engine.stats().windows, 0, "no failed map is counted");
}

/// Failed before: the map of the longer file was given the shorter file's window.
#[test]
fn a_file_that_was_made_longer_has_another_window() {
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .build()
        .unwrap();
    let file = file(PAGE);
    // SAFETY: changes are a part of the test.
    let short = unsafe { engine.map(&file) }.unwrap();
    engine.truncate(&file, 1024 * PAGE).unwrap();
    // Past the clock tick in which the file changed.
    std::thread::sleep(std::time::Duration::from_millis(60));
    engine.truncate(&file, 1024 * PAGE).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(60));
    // SAFETY: as above.
    let long = unsafe { engine.map(&file) }.unwrap();
    assert_eq!(long.len as u64, 1024 * PAGE);
    fits(&short);
    fits(&long);
    assert_eq!(long[long.len - 1], 0);
}

/// Failed before: the length was that of one look at the file, the window's of another.
#[test]
fn maps_of_a_file_that_shrinks_and_grows_fit_their_windows() {
    const ROUNDS: usize = 3000;
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .build()
        .unwrap();
    let soft = Engine::builder()
        .allow_kernel_maps(false)
        .memory(16 << 20)
        .build_soft()
        .unwrap();
    let file = file(PAGE);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                file.set_len(PAGE).unwrap();
                file.set_len(600 * PAGE).unwrap();
            }
        });
        let _over = softfault_oracle::Finally(|| over.store(true, Ordering::Relaxed));
        for _ in 0..ROUNDS {
            // SAFETY: changes are a part of the test.
            if let Ok(map) = unsafe { engine.map(&file) } {
                fits(&map);
            }
            // SAFETY: as above.
            if let Ok(map) = unsafe { engine.map_copy(&file) } {
                assert!(
                    map.private()
                        .is_none_or(|map| map.window().len() >= map.len())
                );
            }
            let map = soft.map(&file).unwrap();
            assert!(map.len() <= map.cache().addresses().len());
        }
    });
}

/// Failed before: a touch that had begun before the kernel served the window left a page in the engine's cache, which the map showed
/// again once the engine served it, older than what it had shown meanwhile.
#[test]
fn a_late_touch_leaves_no_old_bytes_behind() {
    let engine = Engine::builder().memory(16 << 20).small_maps(0).build();
    let engine = engine.unwrap();
    let file = file(0);
    file.write_all_at(&vec![b'o'; 1024 * PAGE as usize], 0)
        .unwrap();
    // A map by a descriptor that may write is the kernel's.
    let to_read = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    // SAFETY: changes are a part of the test.
    let map = unsafe { engine.map(&to_read) }.unwrap();
    let MmapKind::Managed(managed) = &map.kind else {
        panic!("the engine's");
    };
    // It may have it already, as the page cache has the file.
    managed.change_server(false).unwrap();
    if !managed.change_server(true).unwrap_or(false) {
        return softfault_skip::skipped("kernel", "the kernel may not serve the file");
    }
    let process = crate::process::get().unwrap();
    {
        let _masked = signal::masked();
        // What the handler does for a touch of before.
        let flags = FaultFlags::default();
        fault::handle(process.space(), map.start, flags, &NeverInterrupted);
    }
    file.write_all_at(b"new", 0).unwrap();
    assert_eq!(&map[..3], b"new", "as the kernel has it");
    assert!(managed.change_server(false).unwrap());
    assert_eq!(&map[..3], b"new", "by the engine");
}
