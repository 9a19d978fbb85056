//! Reads of files call no function that a library may have taken over: this program has taken `pread` over.

mod files;

use files::{check, made_file};
use softfault::{Engine, Reads};
use softfault_engine::PAGE_SIZE;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const BUDGET: usize = 8 << 20;
const BYTES: usize = 2 * BUDGET;

static CALLS: AtomicUsize = AtomicUsize::new(0);

/// In the place of the C library's, for all of this program. A library that is preloaded may take locks here, which a thread holds that waits for
/// the read.
#[unsafe(no_mangle)]
extern "C" fn pread(fd: i32, to: *mut libc::c_void, bytes: usize, at: i64) -> isize {
    CALLS.fetch_add(1, SeqCst);
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(libc::SYS_pread64, fd, to, bytes, at) as isize }
}

#[test]
fn reads_go_straight_to_the_kernel() {
    let mut byte = 0u8;
    // SAFETY: writes nothing: the descriptor is none.
    unsafe { libc::pread(-1, (&raw mut byte).cast(), 1, 0) };
    assert_eq!(CALLS.swap(0, SeqCst), 1, "it is taken over");
    for reads in [Reads::Direct, Reads::Cached] {
        let builder = Engine::builder().memory(BUDGET).reads(reads);
        let engine = builder
            .allow_kernel_maps(false)
            .small_maps(0)
            .build()
            .unwrap();
        let file = made_file("straight", BYTES);
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map(&file) }.unwrap();
        // The engine has tried the call when it was made, of nothing.
        CALLS.store(0, SeqCst);
        for page in 0..BYTES / PAGE_SIZE {
            // In no order that is read ahead of.
            check(&map, page * 2741 % (BYTES / PAGE_SIZE) * PAGE_SIZE);
        }
        let stats = engine.stats();
        assert!(stats.bytes_read >= BYTES as u64, "{stats:?}");
        assert_eq!(CALLS.load(SeqCst), 0, "reads by pread of the C library");
    }
}
