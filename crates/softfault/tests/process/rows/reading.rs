//! The kernel, another process or a device reads memory that is not there.

use crate::call::{answer, errno, part};
use crate::row::{Row, Verdict, skip};
use crate::scene::{Kind, PAGE, Scene};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const HUNDRED: usize = 100 * PAGE;

pub const ROWS: &[Row] = &[
    Row {
        name: "write-cold",
        does: "`write`, `vmsplice` from memory whose pages are missing",
        kinds: Kind::SERVED,
        verdict: Verdict::Refused,
        then: "EFAULT, or short; the written bytes are right (`write_to`, `pin`, `lock` bring pages in)",
        play: |kind| {
            let scene = Scene::new(kind);
            let start = part(&scene, 0..100).start;
            scene.check_all();
            let (reader, writer) = pipe();
            let mut refused = [0; 2];
            for first in 0..64 {
                // SAFETY: only reads the map; the kernel notices missing pages.
                let wrote = unsafe {
                    libc::write(
                        writer.as_raw_fd(),
                        (start + first * PAGE) as *const _,
                        3 * PAGE,
                    )
                };
                refused[0] += usize::from(wrote < 3 * PAGE as isize);
                check_piped(&scene, &reader, first, wrote);
                let piece = libc::iovec {
                    iov_base: (start + first * PAGE) as *mut _,
                    iov_len: 3 * PAGE,
                };
                // SAFETY: as above.
                let spliced = unsafe {
                    libc::vmsplice(writer.as_raw_fd(), &piece, 1, libc::SPLICE_F_NONBLOCK)
                };
                refused[1] += usize::from(spliced < 3 * PAGE as isize);
                check_piped(&scene, &reader, first, spliced);
            }
            assert!(refused.iter().all(|&refused| refused > 0), "{refused:?}");
            scene
        },
    },
    Row {
        name: "vmsplice-evicted",
        does: "`vmsplice` of pages that are evicted before the pipe is read",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            let (reader, writer) = pipe();
            (0..8).for_each(|page| scene.check(page));
            let piece = libc::iovec {
                iov_base: scene.addresses().start as *mut _,
                iov_len: 8 * PAGE,
            };
            // SAFETY: only reads the map.
            let spliced = unsafe { libc::vmsplice(writer.as_raw_fd(), &piece, 1, 0) };
            scene.check_all();
            scene.check_all();
            check_piped(&scene, &reader, 0, spliced);
            scene
        },
    },
    Row {
        name: "read-into",
        does: "`read` into private memory",
        kinds: &[Kind::Copy, Kind::Anon],
        verdict: Verdict::Refused,
        then: "EFAULT or short, unless it is locked; no byte of it is lost (`read_from`, `lock`)",
        play: |kind| {
            let mut scene = Scene::new(kind);
            let file = crate::scene::file();
            let start = scene.addresses().start;
            let mut refused = 0;
            for page in (0..scene.pages()).step_by(7) {
                let at = (page * PAGE) as i64;
                // SAFETY: memory of ours that nobody else uses.
                let read = unsafe {
                    libc::pread(file.as_raw_fd(), (start + page * PAGE) as *mut _, PAGE, at)
                };
                match read {
                    -1 => refused += 1,
                    read if read as usize == PAGE => scene.forget(page, 0),
                    _ => scene.write(page),
                }
            }
            assert!(refused > 0, "no call was refused");
            scene
        },
    },
    Row {
        name: "process-vm-readv",
        does: "`process_vm_readv`, `/proc/self/mem`, by the process and by a child",
        kinds: Kind::SERVED,
        verdict: Verdict::Refused,
        then: "EFAULT, EIO or short where pages are missing",
        play: |kind| {
            let scene = Scene::new(kind);
            scene.check_all();
            // SAFETY: only asks.
            let this = unsafe { libc::getpid() };
            assert!(read_of(&scene, this) > 0, "by the process");
            let status = crate::child::forked(|| i32::from(read_of(&scene, this) == 0));
            assert_eq!(status, 0, "by a child");
            let memory = std::fs::File::open("/proc/self/mem").expect("own memory");
            let start = scene.addresses().start;
            let mut refused = 0;
            for page in 0..500 {
                let mut words = [0_u64; PAGE / 8];
                let at = (start + page * PAGE) as i64;
                // SAFETY: fills the words.
                let read =
                    unsafe { libc::pread(memory.as_raw_fd(), words.as_mut_ptr().cast(), PAGE, at) };
                refused += check_words(&scene, page, &words, read);
            }
            assert!(refused > 0, "by /proc/self/mem");
            scene
        },
    },
    Row {
        name: "ptrace",
        does: "a debugger that attaches and reads memory (PTRACE_PEEKDATA)",
        kinds: Kind::SERVED,
        verdict: Verdict::Refused,
        then: "EIO where pages are missing",
        play: |kind| {
            let scene = Scene::new(kind);
            scene.check_all();
            let start = scene.addresses().start;
            // SAFETY: only asks, and lets a child trace this process.
            let (this, thread) = unsafe {
                libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
                (libc::getpid(), libc::gettid())
            };
            // SAFETY: it traces its parent, and ends.
            let status = crate::child::forked(|| unsafe { traced(&scene, start, this, thread) });
            if status == 77 << 8 {
                skip("gdb", "no process may be traced here");
            }
            assert_eq!(status, 0);
            scene
        },
    },
    Row {
        name: "direct-write",
        does: "O_DIRECT writes, by `pwrite` and `io_submit`, from the map to a file",
        kinds: Kind::SERVED,
        verdict: Verdict::Refused,
        then: "EFAULT or short where pages are missing; the written bytes are right",
        play: |kind| {
            let scene = Scene::new(kind);
            let target = direct_file();
            scene.check_all();
            let start = scene.addresses().start;
            let mut refused = [0; 2];
            for page in 0..400 {
                if page % 2 == 0 {
                    scene.check(page);
                }
                let from = (start + page * PAGE) as *const libc::c_void;
                let at = (page * PAGE) as i64;
                let mut words = [0_u64; PAGE / 8];
                // SAFETY: only reads the map; fills the words.
                unsafe {
                    let wrote = match page % 3 {
                        0 => aio_write(target.as_raw_fd(), from, at),
                        _ => libc::pwrite(target.as_raw_fd(), from, PAGE, at),
                    };
                    if wrote == PAGE as isize {
                        let plain = buffered(&target);
                        let read =
                            libc::pread(plain.as_raw_fd(), words.as_mut_ptr().cast(), PAGE, at);
                        assert_eq!(read, PAGE as isize);
                    }
                    refused[usize::from(page % 3 == 0)] += check_words(&scene, page, &words, wrote);
                }
            }
            assert!(refused.iter().all(|&refused| refused > 0), "{refused:?}");
            scene
        },
    },
    Row {
        name: "futex-cold",
        does: "a futex in a missing page",
        kinds: Kind::SERVED,
        verdict: Verdict::Refused,
        then: "EFAULT where the page is missing: locks of glibc and of pthreads end the process then; `lock` memory that contains them",
        play: |kind| {
            let scene = Scene::new(kind);
            let start = scene.addresses().start;
            let mut refused = 0;
            for page in 0..200 {
                let no_wait = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 1,
                };
                let at = start + page * PAGE;
                // SAFETY: only reads the word, which differs from the value waited for.
                let said = unsafe {
                    libc::syscall(
                        libc::SYS_futex,
                        at,
                        libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                        1,
                        &no_wait,
                    )
                };
                let errno = errno(answer(said));
                assert!(
                    [libc::EFAULT, libc::EAGAIN].contains(&errno),
                    "errno {errno}"
                );
                refused += usize::from(errno == libc::EFAULT);
            }
            assert!(refused > 0, "no call was refused");
            scene
        },
    },
];

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: fills the array; the descriptors are nobody else's.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

/// Reads from a pipe the bytes that were spliced from page `first` on, and compares them.
fn check_piped(scene: &Scene, from: &OwnedFd, first: usize, wrote: isize) {
    if wrote == -1 {
        return assert_eq!(errno(Err(std::io::Error::last_os_error())), libc::EFAULT);
    }
    let mut words = vec![0_u64; 8 * PAGE / 8];
    // SAFETY: fills the words.
    let read = unsafe { libc::read(from.as_raw_fd(), words.as_mut_ptr().cast(), wrote as usize) };
    assert_eq!(read, wrote);
    for (at, words) in words
        .chunks(PAGE / 8)
        .enumerate()
        .take(wrote as usize / PAGE)
    {
        assert!(scene.is_right(first + at, words), "page {}", first + at);
    }
}

/// Compares the words read of a page, if it was read. Counts it if not all of it was.
fn check_words(scene: &Scene, page: usize, words: &[u64], read: isize) -> usize {
    if read > 0 {
        let words = &words[..read as usize / 8];
        assert!(
            scene.is_right(page, words),
            "page {page}: {:x?}",
            &words[..2]
        );
    }
    usize::from(read < PAGE as isize)
}

/// Reads pages of this memory in a process. Counts those that it could not read.
fn read_of(scene: &Scene, process: libc::pid_t) -> usize {
    let mut refused = 0;
    let start = scene.addresses().start;
    for page in 0..500 {
        let mut words = [0_u64; PAGE / 8];
        let into = libc::iovec {
            iov_base: words.as_mut_ptr().cast(),
            iov_len: PAGE,
        };
        let from = libc::iovec {
            iov_base: (start + page * PAGE) as *mut _,
            iov_len: PAGE,
        };
        // SAFETY: fills the words.
        let read = unsafe { libc::process_vm_readv(process, &into, 1, &from, 1, 0) };
        refused += check_words(scene, page, &words, read);
    }
    refused
}

/// In the tracer: stops a thread, reads words of its memory. The exit code.
///
/// # Safety
/// In a child of fork that ends with it; the scene is only asked for the expected words.
unsafe fn traced(scene: &Scene, start: usize, process: libc::pid_t, thread: libc::pid_t) -> i32 {
    let _ = process;
    // SAFETY: a thread of the parent, which waits; the calls change nothing there.
    unsafe {
        let none = core::ptr::null_mut::<libc::c_void>();
        if libc::ptrace(libc::PTRACE_ATTACH, thread, none, none) != 0 {
            return 77;
        }
        libc::waitpid(thread, core::ptr::null_mut(), libc::__WALL);
        let mut missing = 0;
        for page in 0..500 {
            *libc::__errno_location() = 0;
            let at = (start + page * PAGE) as *mut libc::c_void;
            let word = libc::ptrace(libc::PTRACE_PEEKDATA, thread, at, none);
            if *libc::__errno_location() != 0 {
                missing += 1;
            } else if !scene.is_right(page, &[word as u64]) {
                return 1;
            }
        }
        libc::ptrace(libc::PTRACE_DETACH, thread, none, none);
        if missing > 0 { 0 } else { 2 }
    }
}

/// An empty file, without a name, past the page cache.
fn direct_file() -> OwnedFd {
    let place = std::ffi::CString::new(env!("CARGO_TARGET_TMPDIR")).expect("a path");
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_DIRECT | libc::O_CLOEXEC;
    // SAFETY: opens a file; the descriptor is nobody else's.
    unsafe {
        let fd = libc::open(place.as_ptr(), flags, 0o600);
        if fd < 0 {
            skip("direct", "no direct files here");
        }
        let fd = OwnedFd::from_raw_fd(fd);
        assert_eq!(libc::ftruncate(fd.as_raw_fd(), (4 * HUNDRED) as i64), 0);
        fd
    }
}

fn buffered(direct: &OwnedFd) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", direct.as_raw_fd());
    std::fs::File::open(path).expect("the same file").into()
}

/// io_submit(2) of one write, and its end.
///
/// # Safety
/// The page is readable, or missing.
unsafe fn aio_write(fd: i32, from: *const libc::c_void, at: i64) -> isize {
    #[repr(C)]
    #[derive(Default)]
    struct Iocb {
        data: u64,
        key: u32,
        rw_flags: u32,
        opcode: u16,
        priority: i16,
        fd: u32,
        buffer: u64,
        bytes: u64,
        offset: i64,
        reserved: [u64; 2],
    }
    const WRITE: u16 = 1;
    let mut control = Iocb {
        opcode: WRITE,
        fd: fd as u32,
        buffer: from.addr() as u64,
        bytes: PAGE as u64,
        offset: at,
        ..Iocb::default()
    };
    // SAFETY: the structures are those of the calls.
    unsafe {
        let mut context = 0_usize;
        assert_eq!(libc::syscall(libc::SYS_io_setup, 1, &mut context), 0);
        let mut list = &raw mut control;
        let mut event = [0_i64; 4];
        let submitted = libc::syscall(libc::SYS_io_submit, context, 1, &mut list);
        let mut done = -1;
        if submitted == 1 {
            assert_eq!(
                libc::syscall(
                    libc::SYS_io_getevents,
                    context,
                    1,
                    1,
                    event.as_mut_ptr(),
                    0_usize
                ),
                1
            );
            done = event[2];
        }
        libc::syscall(libc::SYS_io_destroy, context);
        done.max(-1) as isize
    }
}
