//! Structures of other releases' sizes, and the options that engines take.

use crate::twin::{PAGE, READ, answer, engine_options, errno, file, of_file, text};
use core::ffi::c_char;
use softfault_c::engine::{
    softfault_engine, softfault_engine_free, softfault_engine_new, softfault_engine_options,
    softfault_set_memory,
};
use softfault_c::mmap::{softfault_map_options, softfault_mmap_ex};
use softfault_c::munmap::softfault_munmap;
use softfault_c::stats::{softfault_stats as Stats, softfault_stats};
use softfault_c::version::{SOFTFAULT_ABI_VERSION, softfault_abi_version, softfault_version};
use std::ffi::CStr;

/// A structure of a later release, which has a word more.
#[repr(C)]
struct Later<T> {
    now: T,
    then: u64,
}

fn new(options: &softfault_engine_options) -> Result<*mut softfault_engine, i32> {
    // SAFETY: a structure of its size, or of fewer bytes.
    let engine = unsafe { softfault_engine_new(options) };
    if engine.is_null() {
        Err(errno())
    } else {
        Ok(engine)
    }
}

#[test]
fn options_of_another_release() {
    let _turn = crate::twin::turn();
    let mut options = engine_options();
    options.memory = 8 << 20;
    let mut later = Later {
        now: options,
        then: 0,
    };
    later.now.size = size_of_val(&later);
    let engine = new(&later.now).expect("zero is the default of fields that are not known");
    // SAFETY: it was made.
    unsafe { softfault_engine_free(engine) };
    later.then = 1;
    // SAFETY: as many bytes as it says.
    let said = unsafe { softfault_engine_new(&later.now) };
    assert_eq!((said.is_null(), errno()), (true, libc::E2BIG));
    for wrong in [0, 8, options.size - 1, 1 << 30] {
        options.size = wrong;
        assert_eq!(new(&options), Err(libc::EINVAL), "{wrong}");
    }
}

#[test]
fn numbers_of_another_release() {
    let _turn = crate::twin::turn();
    let mut options = engine_options();
    options.memory = 8 << 20;
    let engine = new(&options).unwrap();
    let mut later = Later {
        // SAFETY: zeros are a value of each field.
        now: unsafe { core::mem::zeroed::<Stats>() },
        then: 77,
    };
    later.now.size = size_of_val(&later);
    // SAFETY: each time a structure of its size, or NULL; an engine that was not freed.
    unsafe {
        assert_eq!(answer(softfault_stats(engine, &mut later.now)), Ok(()));
        assert_eq!(later.now.budget_bytes, 8 << 20);
        assert_eq!(later.then, 0);
        assert_eq!(later.now.size, size_of_val(&later));
        later.now.size = 8;
        assert_eq!(
            answer(softfault_stats(engine, &mut later.now)),
            Err(libc::EINVAL)
        );
        assert_eq!(
            answer(softfault_stats(engine, core::ptr::null_mut())),
            Err(libc::EFAULT)
        );
        softfault_engine_free(engine);
        softfault_engine_free(core::ptr::null_mut());
    }
}

/// No file has such a name.
const LONG: [u8; 301] = {
    let mut name = [b'a'; 301];
    name[300] = 0;
    name
};

#[test]
fn an_engine_that_cannot_be() {
    let _turn = crate::twin::turn();
    type Set = fn(&mut softfault_engine_options);
    let wrong: [(Set, i32, &str); 13] = [
        (|o| o.memory = 4096, libc::EINVAL, "at least 8 MiB"),
        (|o| o.memory = u64::MAX, libc::ENOMEM, "this machine has"),
        (|o| o.reads = 4, libc::EINVAL, "options.reads is 4"),
        (|o| o.reads = -1, libc::EINVAL, "options.reads is -1"),
        (
            |o| o.coherence = i32::MIN,
            libc::EINVAL,
            "options.coherence",
        ),
        (|o| o.faults = 4, libc::EINVAL, "options.faults"),
        (
            |o| o.allow_kernel_maps = 3,
            libc::EINVAL,
            "options.allow_kernel_maps",
        ),
        (|o| o.compression = 9, libc::EINVAL, "options.compression"),
        (|o| o.reserved = 1, libc::EINVAL, "options.reserved"),
        (
            |o| o.policies = c"lock=no-such".as_ptr(),
            libc::EINVAL,
            "no-such",
        ),
        (
            |o| o.swap_directory = c"/no/such/folder".as_ptr(),
            libc::ENOENT,
            "/no/such/folder",
        ),
        (
            |o| o.swap_directory = c"/dev/null".as_ptr(),
            libc::ENOTDIR,
            "/dev/null",
        ),
        (
            |o| o.swap_directory = LONG.as_ptr().cast(),
            libc::ENAMETOOLONG,
            "aaaa",
        ),
    ];
    for (set, why, said) in wrong {
        let mut options = engine_options();
        set(&mut options);
        assert_eq!(new(&options), Err(why), "{said}: {}", text());
        assert!(text().contains(said), "{said}: {}", text());
    }
}

#[test]
fn an_engine_that_can() {
    let _turn = crate::twin::turn();
    let mut outer = engine_options();
    outer.memory = 32 << 20;
    let outer = new(&outer).unwrap();
    let mut options = engine_options();
    options.memory = 16 << 20;
    options.max_memory = 24 << 20;
    options.within = outer;
    let folder = format!("{}\0", env!("CARGO_TARGET_TMPDIR"));
    options.swap_directory = folder.as_ptr().cast::<c_char>();
    options.swap_size = 64 << 20;
    options.compression = softfault_c::engine::SOFTFAULT_COMPRESSION_LZ4;
    options.policies = c"retry=mmap-lock".as_ptr();
    options.coherence = softfault_c::engine::SOFTFAULT_COHERENCE_ENGINE;
    let engine = new(&options).unwrap_or_else(|errno| panic!("{errno}: {}", text()));
    // SAFETY: engines that were not freed.
    unsafe {
        assert_eq!(answer(softfault_set_memory(engine, 24 << 20)), Ok(()));
        assert_eq!(
            answer(softfault_set_memory(engine, 25 << 20)),
            Err(libc::EINVAL)
        );
        assert_eq!(answer(softfault_set_memory(engine, 1)), Err(libc::EINVAL));
    }
    // Its maps keep it.
    let made = file(4 * PAGE);
    let map_options = softfault_map_options {
        size: size_of::<softfault_map_options>(),
        engine,
    };
    let arguments = of_file(
        &made,
        4,
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED,
    );
    // SAFETY: a structure of its size, engines that are not used any more, and a map that is there.
    unsafe {
        let map = softfault_mmap_ex(
            core::ptr::null_mut(),
            arguments.length,
            arguments.prot,
            arguments.flags,
            arguments.fd,
            0,
            &map_options,
        );
        assert_ne!(map, libc::MAP_FAILED, "{}", text());
        softfault_engine_free(engine);
        softfault_engine_free(outer);
        map.cast::<u8>().add(PAGE).write_volatile(201);
        assert_eq!(softfault_munmap(map, 4 * PAGE), 0, "{}", text());
    }
    // The write is in the file by then.
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(&made, &mut byte, PAGE as u64).unwrap();
    assert_eq!(byte, [201]);
    assert_eq!(READ, libc::PROT_READ);
}

#[test]
fn versions() {
    let _turn = crate::twin::turn();
    // SAFETY: a string.
    let version = unsafe { CStr::from_ptr(softfault_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    assert_eq!(softfault_abi_version(), SOFTFAULT_ABI_VERSION);
}
