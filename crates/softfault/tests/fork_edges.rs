//! Forks that meet faults, futures, handlers of the program's, and a system that refuses.

mod child;
mod files;
mod filter;
mod nobody;

use child::{assert_exit, forked, wait};
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use files::{check, made_file};
use softfault::{Advice, Engine, MmapMut};
use softfault_oracle::Finally;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const PAGE: usize = 4096;
const LEN: usize = 8 << 20;

fn engine() -> Engine {
    files::engine(16 << 20)
}

/// Private memory, every other page of which was written.
fn private(engine: &Engine) -> MmapMut {
    let mut map = engine.map_anon(LEN).unwrap();
    map.iter_mut().step_by(2 * PAGE).for_each(|byte| *byte = 7);
    map
}

/// Threads fault files in while others fork, with private memory and without.
#[test]
fn faults_on_files_take_no_lock_of_a_fork() {
    let test = "faults_on_files_take_no_lock_of_a_fork";
    let Some(how) = child::scenario() else {
        child::succeeds(test, "private memory");
        child::succeeds(test, "files only");
        return;
    };
    let file = made_file("beside-forks", 4 * LEN);
    let engine = engine();
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    map.advise(softfault::Advice::Random).unwrap();
    let private = (how == "private memory").then(|| private(&engine));
    let before = engine.stats();
    let over = AtomicBool::new(false);
    let touched = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (map, over, touched) = (&map, &over, &touched);
            scope.spawn(move || {
                for round in 0_usize.. {
                    if over.load(SeqCst) {
                        break;
                    }
                    // Twice the budget: they fault again and again.
                    let page = (round * 4 + thread) * 37 % (4 * LEN / PAGE);
                    check(map, page * PAGE + 11);
                    touched.fetch_add(1, SeqCst);
                }
            });
        }
        let _over = Finally(|| over.store(true, SeqCst));
        let mut forks = 0;
        while forks < 40 || touched.load(SeqCst) < 2_000 {
            assert_eq!(forked(|| 0), 0);
            forks += 1;
        }
    });
    let after = engine.stats();
    assert!(after.faults > before.faults);
    let takings = after.waits.mmap_lock_read.count - before.waits.mmap_lock_read.count;
    assert_eq!(takings, 0, "of {} faults", after.faults - before.faults);
    if let Some(private) = private {
        assert_eq!((private[0], private[PAGE], private[2 * PAGE]), (7, 0, 7));
    }
}

/// Polls until it is ready, for a minute at most.
fn ready<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..60_000 {
        if let Poll::Ready(answer) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return Some(answer);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    None
}

#[test]
fn a_childs_futures_end() {
    let test = "a_childs_futures_end";
    if child::scenario().is_none() {
        return child::succeeds(test, "futures");
    }
    let file = made_file("futures-of-a-child", LEN);
    let engine = engine();
    // SAFETY: nobody writes to the file.
    let shared = unsafe { engine.map(&file) }.unwrap();
    // The threads that serve them are the parent's.
    assert!(ready(shared.fault_in(0..LEN)).unwrap().is_ok());
    // SAFETY: as above.
    let copy = unsafe { engine.map_copy(&file) }.unwrap();
    let copy = copy.make_read_only().unwrap();
    let status = forked(|| {
        let of_copy = ready(copy.fault_in(LEN / 2..LEN)).expect("hangs");
        assert!(of_copy.is_ok(), "{of_copy:?}");
        check(&copy, LEN - 9);
        let of_shared = ready(shared.fault_in(0..PAGE)).expect("hangs");
        assert!(of_shared.is_ok(), "{of_shared:?}");
        check(&shared, 77);
        0
    });
    assert_eq!(status, 0);
}

/// Failed before: the child went on with the parent's map, and panicked.
#[test]
fn a_future_of_a_map_that_a_child_lacks_fails_there() {
    let test = "a_future_of_a_map_that_a_child_lacks_fails_there";
    if child::scenario().is_none() {
        return child::succeeds(test, "futures");
    }
    let file = made_file("futures-of-the-parent", LEN);
    let engine = engine();
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    map.advise(Advice::DontFork).unwrap();
    let all = 0..LEN;
    let mut waiting = Some(map.fault_in_many(core::slice::from_ref(&all)));
    let mut context = Context::from_waker(Waker::noop());
    let first = pin!(waiting.as_mut().unwrap()).poll(&mut context);
    if first.is_ready() {
        softfault_skip::skipped("direct", "8 MiB were read in no time");
        return;
    }
    let status = forked(|| {
        let answers = waiting.take().unwrap().wait();
        assert_eq!(answers, [Err(softfault::FaultError::Forked)]);
        0
    });
    assert_exit(status, 0);
    assert_eq!(waiting.unwrap().wait(), [Ok(())]);
}

/// Before Linux 6.9, and where a filter refuses pidfd_getfd(2), the thread that guards descriptors sends them.
#[test]
fn a_child_reads_files_whose_descriptors_cannot_be_taken() {
    let test = "a_child_reads_files_whose_descriptors_cannot_be_taken";
    if child::scenario().is_none() {
        return child::succeeds(test, "sent");
    }
    // Of a thread it is EINVAL before 6.9.
    filter::deny(&[libc::SYS_pidfd_getfd], libc::EINVAL);
    let file = made_file("sent", LEN);
    let swap = softfault::Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(4 * LEN as u64);
    let engine = Engine::builder().allow_kernel_maps(false).swap(swap);
    let engine = engine.memory(16 << 20).build().unwrap();
    // SAFETY: nobody writes to the file.
    let (shared, copy) = unsafe { (engine.map(&file), engine.map_copy(&file)) };
    let (shared, copy) = (shared.unwrap(), copy.unwrap().make_read_only().unwrap());
    let mut anon = engine.map_anon(LEN).unwrap();
    anon.fill(5);
    anon.advise(Advice::PageOut).unwrap();
    let status = forked(|| {
        for at in (0..LEN).step_by(PAGE) {
            check(&shared, at);
            check(&copy, at);
        }
        let of_copy = ready(copy.fault_in(0..LEN)).expect("hangs");
        assert!(of_copy.is_ok(), "{of_copy:?}");
        assert!(anon.iter().all(|&byte| byte == 5));
        0
    });
    assert_exit(status, 0);
}

/// A future that waits at the fork is asked for in both processes.
#[test]
fn a_future_that_waits_at_the_fork_ends_in_both() {
    let test = "a_future_that_waits_at_the_fork_ends_in_both";
    if child::scenario().is_none() {
        return child::succeeds(test, "both");
    }
    let file = made_file("futures-of-both", 2 * LEN);
    let engine = files::engine(64 << 20);
    // SAFETY: nobody writes to the file.
    let copy = unsafe { engine.map_copy(&file) }.unwrap();
    let copy = copy.make_read_only().unwrap();
    let mut waiting = Box::pin(copy.fault_in(0..2 * LEN));
    let first = waiting
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    if first.is_ready() {
        softfault_skip::skipped("direct", "16 MiB were read in no time");
        return;
    }
    // SAFETY: the child asks, and ends.
    let child = unsafe { libc::fork() };
    let ended = ready(waiting);
    let code = i32::from(!matches!(ended, Some(Ok(()))));
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    assert_eq!((code, wait(child)), (0, 0));
}

/// Has the system refuse from here on, in this process and its children, calls with an
/// argument of which these bits are set.
fn refuse(rules: &[(libc::c_long, u32, u32)]) {
    // From linux/bpf_common.h and linux/seccomp.h: load the number of the call, compare;
    // load the lower half of an argument, test, answer.
    let statement = |code: u16, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = Vec::new();
    for &(call, argument, bits) in rules {
        filter.extend([
            statement(0x20, 0, 0, 0),
            statement(0x15, 0, 3, call as u32),
            statement(0x20, 0, 0, 16 + 8 * argument),
            statement(0x45, 0, 1, bits),
            statement(0x06, 0, 0, 0x0005_0000 | libc::ENOMEM as u32),
        ]);
    }
    filter.push(statement(0x06, 0, 0, 0x7fff_0000));
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program is valid for the calls, which copy it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::syscall(libc::SYS_seccomp, 1, 0, &program),
            0,
            "seccomp"
        );
    }
}

/// Memory that a child can neither take over nor close is never zeros there.
#[test]
fn memory_that_a_child_cannot_take_over_is_not_zeros() {
    let test = "memory_that_a_child_cannot_take_over_is_not_zeros";
    let Some(how) = child::scenario() else {
        for how in ["mmap", "mprotect too", "munmap too"] {
            child::succeeds(test, how);
        }
        return;
    };
    let engine = engine();
    let map = private(&engine);
    // Of UFFDIO_REGISTER; MAP_FIXED; no protection bit tells PROT_NONE, so the third
    // argument's are asked for in their absence: all mprotect of this length.
    const REGISTER: u32 = 0xc020_aa00;
    let ioctl = (libc::SYS_ioctl, 1, REGISTER & !0xc000_0000 & 0xaa00);
    let mut rules = vec![ioctl, (libc::SYS_mmap, 3, libc::MAP_FIXED as u32)];
    if how != "mmap" {
        rules.push((libc::SYS_mprotect, 1, LEN as u32));
    }
    if how == "munmap too" {
        rules.push((libc::SYS_munmap, 1, LEN as u32));
    }
    let status = std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            refuse(&rules);
            forked(|| {
                // Neither a page that was written nor one that is missing.
                i32::from(map[0]) + i32::from(map[PAGE]) + 1
            })
        });
        refused.join().unwrap()
    });
    let ended = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    match how.as_str() {
        "munmap too" => assert_eq!(ended, Some(71), "{status:#x}"),
        _ => {
            let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
            assert_eq!(signal, Some(libc::SIGSEGV), "{status:#x}");
        }
    }
    assert_eq!((map[0], map[PAGE]), (7, 0));
}

static WITHIN: AtomicUsize = AtomicUsize::new(0);

/// A handler that the program registered before its first engine forks, within the fork.
#[test]
fn a_fork_within_a_fork() {
    let test = "a_fork_within_a_fork";
    if child::scenario().is_none() {
        return child::succeeds(test, "within");
    }
    extern "C" fn forks() {
        if WITHIN.fetch_add(1, SeqCst) == 0 {
            // SAFETY: the child ends at once.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            assert_eq!(wait(child), 0);
        }
    }
    // SAFETY: a plain function.
    unsafe { libc::pthread_atfork(Some(forks), None, None) };
    let engine = engine();
    let map = private(&engine);
    let status = forked(|| {
        assert_eq!((map[0], map[PAGE], map[2 * PAGE]), (7, 0, 7));
        0
    });
    assert_eq!((status, WITHIN.load(SeqCst)), (0, 2));
    assert_eq!((map[0], map[PAGE], map[2 * PAGE]), (7, 0, 7));
    // And again, without.
    assert_eq!(forked(|| i32::from(map[0] != 7)), 0);
}

/// Threads make engines and drop them, from the first on, while others fork.
#[test]
fn forks_beside_the_making_of_engines() {
    let test = "forks_beside_the_making_of_engines";
    if child::scenario().is_none() {
        return child::succeeds(test, "making");
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    let engine = engine();
                    let map = private(&engine);
                    assert_eq!((map[0], map[PAGE]), (7, 0));
                }
            });
        }
        let _over = Finally(|| over.store(true, SeqCst));
        for _ in 0..60 {
            // The child has an engine of its own, whatever was being made.
            let status = forked(|| {
                let engine = engine();
                let map = private(&engine);
                i32::from((map[0], map[PAGE]) != (7, 0))
            });
            assert_eq!(status, 0);
        }
    });
}

static MAP: AtomicUsize = AtomicUsize::new(0);

/// A child that is another process in the same memory, as that of vfork, faults for both.
#[test]
fn a_child_that_shares_the_memory_is_served() {
    let test = "a_child_that_shares_the_memory_is_served";
    if child::scenario().is_none() {
        return child::succeeds(test, "shares");
    }
    extern "C" fn touches(_: *mut libc::c_void) -> i32 {
        let start = MAP.load(SeqCst);
        for page in 0..LEN / PAGE {
            // SAFETY: within the map, which the parent keeps.
            let byte = unsafe { ((start + page * PAGE + 3) as *const u8).read_volatile() };
            if byte != files::byte_at(page * PAGE + 3) {
                return 1;
            }
        }
        0
    }
    let file = made_file("shares-memory", LEN);
    let engine = files::engine(LEN);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    MAP.store(map.as_ptr() as usize, SeqCst);
    let mut stack = vec![0_u8; 256 << 10];
    for flags in [
        libc::CLONE_VM,
        libc::CLONE_VM | libc::CLONE_VFORK,
        libc::CLONE_VM | libc::CLONE_FILES,
    ] {
        // SAFETY: a stack of its own, which stays until the child has ended.
        let child = unsafe {
            let top = stack.as_mut_ptr().add(stack.len()) as usize & !63;
            let none = core::ptr::null_mut();
            libc::clone(touches, top as *mut _, flags | libc::SIGCHLD, none)
        };
        assert!(child > 0);
        assert_eq!(wait(child), 0, "{flags:#x}");
        check(&map, LEN / 2);
    }
    assert!(engine.stats().evicted > 0);
}

static IN_HANDLER: AtomicUsize = AtomicUsize::new(99);

/// A signal handler forks, wherever its thread is.
#[test]
fn a_fork_in_a_signal_handler() {
    let test = "a_fork_in_a_signal_handler";
    if child::scenario().is_none() {
        return child::succeeds(test, "handler");
    }
    extern "C" fn forks(_: i32) {
        let start = MAP.load(SeqCst) as *const u8;
        // SAFETY: the child looks at the map, and ends.
        let status = forked(|| unsafe {
            i32::from(start.read_volatile() != 7 || start.add(PAGE).read_volatile() != 0)
        });
        IN_HANDLER.store(status as usize, SeqCst);
    }
    let engine = engine();
    let map = private(&engine);
    MAP.store(map.as_ptr() as usize, SeqCst);
    // SAFETY: a plain function.
    unsafe { libc::signal(libc::SIGUSR1, forks as *const () as usize) };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: asks.
            let number = unsafe { libc::pthread_self() };
            MAP.store(map.as_ptr() as usize, SeqCst);
            let mut other = private(&engine);
            for round in 0_usize.. {
                if over.load(SeqCst) {
                    break;
                }
                other[round * 37 % (LEN / PAGE) * PAGE] = 1;
                if round == 0 {
                    IN_HANDLER.store(number as usize, SeqCst);
                }
            }
        });
        let number = loop {
            match IN_HANDLER.load(SeqCst) {
                99 => std::thread::yield_now(),
                number => break number,
            }
        };
        let over = Finally(|| over.store(true, SeqCst));
        for _ in 0..20 {
            IN_HANDLER.store(99, SeqCst);
            // SAFETY: the thread lives.
            unsafe { libc::pthread_kill(number as libc::pthread_t, libc::SIGUSR1) };
            while IN_HANDLER.load(SeqCst) == 99 {
                std::thread::yield_now();
            }
            assert_eq!(IN_HANDLER.load(SeqCst), 0);
        }
        drop(over);
        thread.join().unwrap();
    });
}

/// One thread writes private memory to a stream, which is locked meanwhile, one flushes all streams.
#[test]
fn a_fork_waits_for_no_list_of_streams_that_its_memory_keeps() {
    let test = "a_fork_waits_for_no_list_of_streams_that_its_memory_keeps";
    if child::scenario().is_none() {
        return child::succeeds(test, "streams");
    }
    // SAFETY: a process that waits for itself is killed.
    unsafe { libc::alarm(120) };
    let swap = softfault::Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(8 * LEN as u64);
    let engine = Engine::builder().allow_kernel_maps(false).swap(swap);
    let engine = engine.memory(16 << 20).build().unwrap();
    // Four times the budget.
    let mut map = engine.map_anon(8 * LEN).unwrap();
    map.iter_mut().step_by(PAGE).for_each(|byte| *byte = 7);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (map, over) = (&map, &over);
        let flushing = move || {
            while !over.load(SeqCst) {
                // SAFETY: any thread may flush all streams.
                unsafe { libc::fflush(core::ptr::null_mut()) };
            }
        };
        scope.spawn(flushing);
        scope.spawn(move || {
            // SAFETY: names and memory that live.
            let stream = unsafe { libc::fopen(c"/dev/null".as_ptr(), c"w".as_ptr()) };
            assert!(!stream.is_null());
            for round in 0_usize.. {
                if over.load(SeqCst) {
                    break;
                }
                let page = &map[round * 37 % (8 * LEN / PAGE) * PAGE..][..64];
                // SAFETY: as above. As few bytes as this are copied to the stream's buffer.
                let written = unsafe { libc::fwrite(page.as_ptr().cast(), 1, 64, stream) };
                assert_eq!(written, 64);
            }
            // SAFETY: it is open.
            unsafe { libc::fclose(stream) };
        });
        for _ in 0..200 {
            assert_eq!(forked(|| 0), 0);
        }
        over.store(true, SeqCst);
    });
}

/// A process that has nothing left: no root of its own, no rights.
#[test]
fn a_process_that_gave_up_its_rights_forks() {
    let test = "a_process_that_gave_up_its_rights_forks";
    if child::scenario().is_none() {
        // SAFETY: asks.
        if unsafe { libc::geteuid() } != 0 {
            softfault_skip::skipped("root", "only root can give up rights");
            return;
        }
        return child::succeeds(test, "gives up");
    }
    let engine = engine();
    let map = private(&engine);
    // It stays, as the same one for all.
    let empty = std::env::temp_dir().join("softfault-empty");
    std::fs::create_dir_all(&empty).unwrap();
    // In a child, whose end the test sees.
    let status = forked(|| {
        std::os::unix::fs::chroot(&empty).unwrap();
        std::env::set_current_dir("/").unwrap();
        nobody::become_nobody();
        assert_eq!((map[0], map[PAGE]), (7, 0));
        forked(|| {
            assert_eq!((map[2 * PAGE], map[3 * PAGE]), (7, 0));
            0
        })
    });
    assert_eq!(status, 0);
    assert_eq!((map[0], map[PAGE]), (7, 0));
}

/// Makes mappings until the process may have no more.
fn use_up_mappings() {
    let (most, flags) = (1 << 20, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, whose pages nobody looks at.
    unsafe {
        let null = core::ptr::null_mut();
        let start = libc::mmap(null, most * PAGE, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        let split = |page| libc::mprotect(start.add(page * PAGE), PAGE, libc::PROT_READ) == 0;
        assert!(!(1..most).step_by(2).all(split), "there is no limit");
    }
    // One more splits none, and may be the last that there is room for.
    // SAFETY: a new mapping, which merges with none.
    while unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        libc::mmap(core::ptr::null_mut(), PAGE, 1, flags, -1, 0) != libc::MAP_FAILED
    } {}
}

/// Failed before: no mapping could be made for the child, and its first touch was a SIGSEGV.
#[test]
fn a_child_has_its_files_where_the_parent_may_have_no_more_mappings() {
    let test = "a_child_has_its_files_where_the_parent_may_have_no_more_mappings";
    child::alone(test, || {
        let engine = engine();
        let (first, second) = (made_file("first", LEN), made_file("second", LEN));
        // SAFETY: nobody writes to the files.
        let maps = [&first, &second].map(|file| unsafe { engine.map(file) }.unwrap());
        maps.iter().for_each(|map| check(map, 5));
        drop((first, second));
        // SAFETY: numbers that the program does not know. The child has none of them.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        use_up_mappings();
        let status = forked(|| {
            for map in &maps {
                (5..LEN).step_by(64 * PAGE).for_each(|at| check(map, at));
            }
            0
        });
        assert_exit(status, 0);
        maps.iter().for_each(|map| check(map, LEN - 5));
    });
}
