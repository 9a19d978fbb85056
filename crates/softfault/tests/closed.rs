//! A machine that refuses a kernel interface of ours: userfaultfd, or io_uring.
//!
//! The refusals are seccomp filters in a child process of its own.

mod child;
mod files;
mod filter;

use files::{byte_at, check, made_file};
use filter::deny;
use softfault::{
    Advice, Engine, Fallback, Faults, Mmap, MmapOptions, RemapOptions, UncheckedAdvice,
};

/// They need the call only where the device cannot be opened.
#[test]
fn messages_come_by_the_device_without_the_call() {
    if child::scenario().is_none() {
        return child::succeeds("messages_come_by_the_device_without_the_call", "device");
    }
    deny(&[libc::SYS_userfaultfd], libc::EPERM);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .faults(Faults::Messages);
    let mut device = std::fs::File::options();
    if device
        .read(true)
        .write(true)
        .open("/dev/userfaultfd")
        .is_err()
    {
        let refused = engine.build().unwrap_err();
        return assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
    }
    let engine = engine.build().unwrap();
    let file = made_file("closed-messages", 1 << 20);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    for page in 0..256 {
        check(&map, page * 4096 + page);
    }
    assert!(map.is_managed());
}

#[test]
fn without_userfaultfd_map_fails_naming_doctor_or_falls_back() {
    if child::scenario().is_none() {
        return child::succeeds(
            "without_userfaultfd_map_fails_naming_doctor_or_falls_back",
            "userfaultfd",
        );
    }
    deny(&[libc::SYS_userfaultfd], libc::EPERM);
    let file = made_file("closed", 1 << 20);
    // SAFETY: nobody writes to the file.
    let refused = unsafe { Mmap::map(&file) }.unwrap_err();
    assert!(
        refused.to_string().contains("softfault doctor"),
        "{refused}"
    );
    assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);

    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .fallback(Fallback::Kernel)
        .build()
        .unwrap();
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    for page in 0..256 {
        check(&map, page * 4096 + page);
    }
    assert!(!map.is_managed());
    assert!(engine.stats().kernel_fallback);
    assert_eq!(&map.pin(4096..8192).unwrap()[..], &map[4096..8192]);
    map.advise(softfault::Advice::Random).unwrap();

    // The verbs are the kernel's own.
    // SAFETY: nobody writes to the file.
    let mut copy = unsafe {
        let options = MmapOptions::new().offset(5000).clone();
        options.map_copy_in(&engine, &file).unwrap()
    };
    for mut map in [engine.map_anon(300_000).unwrap(), {
        copy[0] = byte_at(5000);
        copy
    }] {
        assert!(!map.is_managed());
        let was: Vec<u8> = map.to_vec();
        map[1..6].copy_from_slice(b"hello");
        for advice in [Advice::Cold, Advice::PageOut, Advice::PopulateWrite] {
            map.advise_range(advice, 100, 10_000).unwrap();
        }
        map.lock().unwrap();
        map.unlock().unwrap();
        let may_move = RemapOptions::new().may_move(true);
        // SAFETY: nobody has a reference to its bytes.
        unsafe {
            map.remap(200_000, RemapOptions::new()).unwrap();
            map.remap(900_000, may_move).unwrap();
            map.unchecked_advise_range(UncheckedAdvice::DontNeed, 100_000, 50_000)
                .unwrap();
        }
        let map = map.make_read_only().unwrap();
        assert_eq!(&map[1..6], b"hello");
        assert!(map[6..200_000] == was[6..200_000]);
        map.lock().unwrap();
        let mut map = map.make_mut().unwrap();
        map.fill(3);
        let mut written = Vec::new();
        map.write_to(899_000.., &mut written).unwrap();
        assert_eq!(written, [3; 1000]);
        assert_eq!(map.read_from(..5, &mut &b"abc"[..]).unwrap(), 3);
        assert_eq!(&map[..4], b"abc\x03");
    }
    // SAFETY: nobody writes to the file.
    let empty = unsafe { MmapOptions::new().len(0).map_copy_in(&engine, &file) };
    assert!(empty.unwrap().is_empty());

    // Soft page tables need nothing of it, and keep to a budget.
    let soft = files::soft_engine(8 << 20);
    let map = soft.map(&file).unwrap();
    let mut page = [0; 4096];
    for offset in (0..map.len()).step_by(page.len()) {
        map.read_at(&mut page, offset).unwrap();
        assert!((0..page.len()).all(|at| page[at] == byte_at(offset + at)));
    }
}

#[test]
fn without_asynchronous_reads_all_bytes_are_right() {
    if child::scenario().is_none() {
        return child::succeeds(
            "without_asynchronous_reads_all_bytes_are_right",
            "async reads",
        );
    }
    deny(&[libc::SYS_io_uring_setup, libc::SYS_io_setup], libc::EPERM);
    let file = made_file("no-ring", 20 << 20);
    let engine = files::engine(8 << 20);
    assert_eq!(engine.stats().async_reads, None);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    for offset in (0..map.len()).step_by(4096) {
        check(&map, offset);
    }
    assert_eq!(engine.stats().readahead_pages, 0);
}

/// Failed before: each attempt left some ten descriptors open.
#[test]
fn an_engine_without_a_thread_to_serve_its_faults_leaves_nothing() {
    let test = "an_engine_without_a_thread_to_serve_its_faults_leaves_nothing";
    if child::scenario().is_none() {
        return child::succeeds(test, "threads");
    }
    deny(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
    let attempt = || {
        let refused = Engine::builder().faults(Faults::Threads).build();
        let why = refused.unwrap_err();
        assert!(why.to_string().contains("cannot start a thread"), "{why}");
    };
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // What is made once.
    attempt();
    let before = open();
    (0..10).for_each(|_| attempt());
    assert_eq!(open(), before);
}
