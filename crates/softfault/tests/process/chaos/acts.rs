//! The calls that are drawn. Each may be made again and again, by several threads at a time, and
//! leaves a process in which all maps must be right.

use super::draw::Draw;
use super::world::{Which, World, file};
use crate::call::{self, madvise, mlock, mlock_on_fault, mlockall, mprotect, munlock};
use crate::rows::advice::MADV_COLLAPSE;
use crate::rows::locking::may_lock_all;
use crate::scene::PAGE;
use softfault::{Advice, Engine, MIN_MEMORY};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;

pub struct Act {
    pub name: &'static str,
    pub run: fn(&World, &mut Draw),
}

/// How often each was made.
pub static COUNTS: [AtomicU64; ACTS.len()] = [const { AtomicU64::new(0) }; ACTS.len()];

const ALL: [Which; 3] = [Which::File, Which::Copy, Which::Anon];
const PRIVATE: [Which; 2] = [Which::Copy, Which::Anon];

/// Addresses of some pages of a memory.
fn some(world: &World, draw: &mut Draw, of: &[Which], most: usize) -> (Which, Range<usize>) {
    let which = draw.one_of(of);
    let pages = 1 + draw.below(most);
    let from = draw.below(world.pages(which) - pages);
    (which, world.addresses(which, from..from + pages))
}

macro_rules! acts {
    ($($name:literal => |$world:ident, $draw:ident| $run:block)*) => {
        pub static ACTS: &[Act] = &[$(Act { name: $name, run: |$world, $draw| $run }),*];
    };
}

acts! {
    "mlock" => |world, draw| {
        let (_, range) = some(world, draw, &ALL, 64);
        let _ = mlock(&range);
    }
    "mlock2(MLOCK_ONFAULT)" => |world, draw| {
        let (_, range) = some(world, draw, &ALL, 2000);
        let _ = mlock_on_fault(&range);
    }
    "munlock" => |world, draw| {
        let (_, range) = some(world, draw, &ALL, 4000);
        let _ = munlock(&range);
    }
    "munlockall" => |_world, _draw| {
        // SAFETY: unlocks this process's locked memory.
        unsafe { libc::munlockall() };
    }
    "mlockall(MCL_FUTURE)" => |world, _draw| {
        let _identity = world.identity.read().expect("no panic");
        if may_lock_all() {
            let _ = mlockall(libc::MCL_FUTURE);
        }
    }
    "mlockall(MCL_CURRENT | MCL_ONFAULT)" => |world, _draw| {
        let _identity = world.identity.read().expect("no panic");
        if may_lock_all() {
            let _ = mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT);
        }
    }
    "madvise, harmless" => |world, draw| {
        let (_, range) = some(world, draw, &ALL, 3000);
        let _ = madvise(&range, draw.one_of(&[
            libc::MADV_NORMAL, libc::MADV_RANDOM, libc::MADV_SEQUENTIAL, libc::MADV_WILLNEED,
            libc::MADV_COLD, libc::MADV_PAGEOUT, libc::MADV_HUGEPAGE, libc::MADV_NOHUGEPAGE,
            libc::MADV_MERGEABLE, libc::MADV_UNMERGEABLE, libc::MADV_DONTDUMP, libc::MADV_DODUMP,
            libc::MADV_POPULATE_READ, MADV_COLLAPSE,
        ]));
    }
    "madvise, a file's pages dropped" => |world, draw| {
        let (_, range) = some(world, draw, &[Which::File], 300);
        let _ = madvise(&range, draw.one_of(&[
            libc::MADV_DONTNEED, libc::MADV_DONTNEED_LOCKED, libc::MADV_FREE, libc::MADV_REMOVE,
        ]));
    }
    "mprotect" => |world, draw| {
        let (which, range) = some(world, draw, &ALL, 500);
        let usual = if which == Which::File { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
        let _ = mprotect(&range, draw.one_of(&[libc::PROT_READ | libc::PROT_EXEC, libc::PROT_READ]));
        let _ = mprotect(&range, usual);
    }
    "mincore, msync, mbind" => |world, draw| {
        let (_, range) = some(world, draw, &ALL, 500);
        let mut pages = [0_u8; 512];
        // SAFETY: calls that change nothing; there is a byte for each page.
        unsafe {
            libc::mincore(range.start as *mut _, range.len(), pages.as_mut_ptr());
            libc::msync(range.start as *mut _, range.len(), libc::MS_SYNC);
            libc::syscall(libc::SYS_mbind, range.start, range.len(), 0, 0_usize, 0, 0);
        }
    }
    "process_vm_readv" => |world, draw| {
        let which = draw.one_of(&ALL);
        let page = draw.below(world.pages(which));
        let mut bytes = [0_u8; PAGE];
        let into = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: PAGE };
        let start = world.addresses(which, page..page + 1).start;
        let from = libc::iovec { iov_base: start as *mut _, iov_len: PAGE };
        // SAFETY: fills the bytes.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &into, 1, &from, 1, 0) };
        if read > 0 {
            world.check(which, page, &bytes[..read as usize]);
        }
    }
    "write of pages that may be missing" => |world, draw| {
        let _own = world.descriptors.read().expect("no panic");
        let which = draw.one_of(&ALL);
        let page = draw.below(world.pages(which));
        let start = world.addresses(which, page..page + 1).start;
        let mut ends = [0; 2];
        // SAFETY: fills the array; the descriptors are nobody else's; only reads the map.
        unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            let (reader, writer) = (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]));
            let wrote = libc::write(writer.as_raw_fd(), start as *const _, PAGE);
            let mut bytes = [0_u8; PAGE];
            if wrote > 0 {
                let read = libc::read(reader.as_raw_fd(), bytes.as_mut_ptr().cast(), PAGE);
                assert_eq!(read, wrote);
                world.check(which, page, &bytes[..read as usize / 8 * 8]);
            }
        }
    }
    "fork, and the child reads" => |world, draw| {
        // Without rights a child has no memory to go on with; nor if descriptors are closed
        // between the look at them and the fork.
        let _identity = world.identity.read().expect("no panic");
        let _own = world.descriptors.read().expect("no panic");
        let which = draw.one_of(&PRIVATE);
        let from = draw.below(world.pages(which) - 64);
        let status = forked(|| {
            for page in from..from + 64 {
                // An error has more to say as a value.
                if let Err(error) = world.read_at(which, page) {
                    eprintln!("page {page} of {which:?} in a child: {error:?}");
                    return 2;
                }
                let bytes = &world.bytes(which)[page * PAGE..(page + 1) * PAGE];
                let mut words = bytes.chunks_exact(8).enumerate();
                let right = words.all(|(at, found)| {
                    found == world.word(which, page * (PAGE / 8) + at).to_le_bytes()
                });
                if !right {
                    return 1;
                }
            }
            0
        });
        assert_eq!(status, 0, "a child of fork has read something else: {status:#x}");
    }
    "fork, and the child closes all" => |_world, _draw| {
        assert_eq!(forked(|| {
            // SAFETY: closes descriptors that the child does not use.
            unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
            0
        }), 0);
    }
    "vfork and exec" => |world, _draw| {
        let _identity = world.identity.read().expect("no panic");
        let _own = world.descriptors.read().expect("no panic");
        let status = std::process::Command::new("true").status();
        assert!(status.expect("started").success());
    }
    "clone(CLONE_VM), and the other process reads" => |world, draw| {
        let which = draw.one_of(&ALL);
        let page = draw.below(world.pages(which));
        let mut words = [0_u64; PAGE / 8];
        let start = world.addresses(which, page..page + 1).start;
        assert!(call::touched_elsewhere(start, &mut words));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        world.check(which, page, &bytes);
    }
    "close of all descriptors" => |world, _draw| {
        let _others = world.descriptors.write().expect("no panic");
        close_all();
    }
    "dup2 over all descriptors" => |world, draw| {
        let _identity = world.identity.read().expect("no panic");
        let _others = world.descriptors.write().expect("no panic");
        let other = match draw.below(2) {
            0 => File::open("/dev/zero"),
            _ => File::open(std::env::current_exe().expect("a path")),
        };
        let other = other.expect("readable");
        let kept = other.as_raw_fd();
        // SAFETY: numbers that this process does not use; they are closed again.
        unsafe {
            for fd in (3..120).filter(|&fd| fd != kept) {
                libc::dup2(kept, fd);
            }
        }
        drop(other);
        close_all();
    }
    "fcntl of all descriptors" => |world, _draw| {
        let _others = world.descriptors.write().expect("no panic");
        for fd in 3..120 {
            // SAFETY: flags of descriptions.
            unsafe { libc::fcntl(fd, libc::F_SETFL, 0) };
        }
    }
    "RLIMIT_NOFILE of 0 for a while" => |world, draw| {
        let _forks = world.identity.write().expect("no panic");
        let _others = world.descriptors.write().expect("no panic");
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a limit of this process, and its old value.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut before);
            let none = libc::rlimit { rlim_cur: 0, ..before };
            libc::setrlimit(libc::RLIMIT_NOFILE, &none);
            touch(world, draw, 40);
            libc::setrlimit(libc::RLIMIT_NOFILE, &before);
        }
    }
    "unshare(CLONE_FILES) in a thread" => |world, draw| {
        let (which, page) = (draw.one_of(&ALL), draw.below(2000));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // SAFETY: this thread alone.
                unsafe { libc::unshare(libc::CLONE_FILES | libc::CLONE_FS) };
                close_all();
                let bytes = page * PAGE..(page + 40) * PAGE;
                world.check(which, page, &world.bytes(which)[bytes]);
            });
        });
    }
    "signals whose handlers touch" => |world, draw| {
        super::signals::storm(world, draw);
    }
    "pthread_cancel" => |world, draw| {
        super::signals::cancelled(world, draw);
    }
    "timers" => |world, draw| {
        super::signals::timers(world, draw);
    }
    "an alternate stack" => |world, draw| {
        let (which, page) = (draw.one_of(&ALL), draw.below(2000));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut memory = vec![0_u8; 16 << 10];
                let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
                let none = libc::stack_t { ss_sp: core::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
                // SAFETY: this thread's, given back before the memory goes.
                unsafe {
                    libc::sigaltstack(&stack, core::ptr::null_mut());
                    let bytes = page * PAGE..(page + 40) * PAGE;
                    world.check(which, page, &world.bytes(which)[bytes]);
                    libc::sigaltstack(&none, core::ptr::null_mut());
                }
            });
        });
    }
    "prctl(PR_SET_DUMPABLE)" => |_world, draw| {
        // SAFETY: an attribute of this process.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, draw.below(2)) };
    }
    "prctl, others" => |_world, draw| {
        let (option, argument) = draw.one_of(&[
            (libc::PR_SET_THP_DISABLE, 1), (libc::PR_SET_THP_DISABLE, 0),
            (libc::PR_SET_TIMERSLACK, 1), (67, 1), (67, 0),
        ]);
        // SAFETY: attributes of this process.
        unsafe { libc::prctl(option, argument, 0_usize, 0_usize, 0_usize) };
    }
    "another scheduling" => |_world, draw| {
        let policy = draw.one_of(&[libc::SCHED_BATCH, libc::SCHED_OTHER, libc::SCHED_IDLE]);
        // SAFETY: attributes of this thread; all zeros are valid ones.
        unsafe {
            let none: libc::sched_param = core::mem::zeroed();
            libc::sched_setscheduler(0, policy, &none);
            let mut one: libc::cpu_set_t = core::mem::zeroed();
            (0..64).filter(|cpu| draw.below(2) == cpu % 2).for_each(|cpu| libc::CPU_SET(cpu, &mut one));
            libc::sched_setaffinity(0, size_of_val(&one), &one);
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &none);
        }
    }
    "seteuid of nobody for a while" => |world, draw| {
        let _others = world.identity.write().expect("no panic");
        // The C library tells every thread with a handler on its alternate stack: one that
        // interrupts that, and touches, would need more of it than Rust's have.
        let _handlers = super::signals::HANDLERS.lock().expect("no panic");
        // SAFETY: this process's credentials, changed and restored. Nobody may lock much memory, and no thread
        // could be started that needs some.
        unsafe {
            libc::munlockall();
            if libc::getuid() == 0 && libc::seteuid(65534) == 0 {
                touch(world, draw, 20);
                assert_eq!(libc::seteuid(0), 0);
                libc::prctl(libc::PR_SET_DUMPABLE, 1);
            }
        }
    }
    "MADV_DOFORK of a file's map, WIPEONFORK" => |world, draw| {
        let (_, range) = some(world, draw, &[Which::File], 500);
        let _ = madvise(&range, draw.one_of(&[
            libc::MADV_DOFORK, libc::MADV_DONTFORK, libc::MADV_WIPEONFORK, libc::MADV_KEEPONFORK,
        ]));
    }
    "SIGSTOP and SIGCONT" => |_world, _draw| {
        // SAFETY: a child that stops and continues its parent, and ends.
        unsafe {
            let parent = libc::getpid();
            forked(|| {
                libc::kill(parent, libc::SIGSTOP);
                libc::usleep(1000);
                libc::kill(parent, libc::SIGCONT);
                0
            });
        }
    }
    "another engine and map" => |world, draw| {
        let _identity = world.identity.read().expect("no panic");
        let _own = world.descriptors.read().expect("no panic");
        let engine = Engine::builder().allow_kernel_maps(false).memory(MIN_MEMORY).trust_signal_handlers(true).build();
        let Ok(engine) = engine else { return };
        // SAFETY: nobody writes to the file.
        let Ok(map) = (unsafe { engine.map(&file()) }) else { return };
        let page = draw.below(10_000);
        world.check(Which::File, page, &map[page * PAGE..(page + 100) * PAGE]);
    }
    "another map of the engine, and its end" => |world, draw| {
        let _identity = world.identity.read().expect("no panic");
        let _own = world.descriptors.read().expect("no panic");
        let len = (1 + draw.below(4000)) * PAGE;
        // SAFETY: nobody writes to the file.
        let map = unsafe { softfault::MmapOptions::new().len(len).map_copy_in(&world.engine, &file()) };
        let Ok(mut map) = map else { return };
        let page = draw.below(len / PAGE);
        let (from, to) = (page * PAGE, (page + 1) * PAGE);
        if map.populate(from..to).is_ok() {
            map[from..to].fill(7);
        }
    }
    "set_memory" => |world, draw| {
        let bytes = draw.one_of(&[MIN_MEMORY, 12 << 20, 16 << 20]);
        let _ = world.engine.set_memory(bytes);
    }
    "advise, invalidate, prefetch" => |world, draw| {
        let page = draw.below(world.pages(Which::File) - 1000);
        let range = page * PAGE..(page + 1 + draw.below(900)) * PAGE;
        let advice = draw.one_of(&[Advice::Normal, Advice::Random, Advice::Sequential, Advice::WillNeed, Advice::PageOut]);
        let _ = world.file.advise_range(advice, range.start, range.len());
        let _ = world.file.prefetch(range.clone());
        if draw.below(4) == 0 {
            let _ = world.file.invalidate(range);
        }
    }
}

/// Runs in a child of fork, which ends with its answer; returns its status. It may not take locks that
/// another thread held at the fork, so it does not allocate.
fn forked(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child does nothing but `child`, and ends.
    unsafe {
        match libc::fork() {
            0 => {
                libc::alarm(300);
                libc::_exit(child())
            }
            // No more processes just now.
            -1 => 0,
            process => crate::child::wait(process),
        }
    }
}

fn close_all() {
    // SAFETY: closes descriptors that this process does not use.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
}

/// Reads some pages by plain touches.
fn touch(world: &World, draw: &mut Draw, pages: usize) {
    for _ in 0..pages {
        let which = draw.one_of(&ALL);
        let page = draw.below(world.pages(which));
        world.check(
            which,
            page,
            &world.bytes(which)[page * PAGE..(page + 1) * PAGE],
        );
    }
}
