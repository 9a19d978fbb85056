//! Signals, masks, alternate stacks, timers, cancelled threads.

use crate::row::{Row, Verdict};
use crate::scene::{Kind, PAGE, Scene, word};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

pub const ROWS: &[Row] = &[
    Row {
        name: "sigbus-blocked",
        does: "SIGBUS blocked in a thread that touches a missing page",
        kinds: Kind::SERVED,
        verdict: Verdict::Dies(libc::SIGBUS),
        then: "the kernel ends the process: it cannot deliver the signal (`map` refuses in such a thread)",
        play: |kind| {
            let scene = Scene::new(kind);
            block(&[libc::SIGBUS]);
            scene.check_all();
            scene
        },
    },
    Row {
        name: "sigbus-blocked-calls",
        does: "SIGBUS blocked in a thread that uses calls only (`read_at`, `pin`, `write_to`)",
        kinds: &[Kind::File],
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            std::thread::scope(|scope| {
                let scene = &scene;
                scope.spawn(move || {
                    block(&[libc::SIGBUS]);
                    let mut buffer = [0; PAGE];
                    for page in 0..scene.pages() {
                        scene.map().read_at(&mut buffer, page * PAGE).expect("read");
                        assert_eq!(buffer[..8], word(page * PAGE / 8, 0).to_le_bytes());
                    }
                });
            });
            scene
        },
    },
    Row {
        name: "all-blocked",
        does: "all signals blocked but SIGBUS",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            let all: Vec<i32> = (1..=64).filter(|&signal| signal != libc::SIGBUS).collect();
            block(&all);
            scene
        },
    },
    Row {
        name: "alternate-stack",
        does: "a small alternate stack, and handlers on it that touch nothing of ours",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "faults are served on the stack that touched; a handler that touches maps on an alternate stack needs 16 KiB",
        play: |kind| {
            let scene = Scene::new(kind);
            let stack = Box::leak(vec![0_u8; 8192].into_boxed_slice());
            let stack = libc::stack_t {
                ss_sp: stack.as_mut_ptr().cast(),
                ss_flags: 0,
                ss_size: stack.len(),
            };
            // SAFETY: memory that is never freed.
            let set = unsafe { libc::sigaltstack(&stack, core::ptr::null_mut()) };
            assert_eq!(set, 0);
            install(
                libc::SIGALRM,
                count as *const () as usize,
                libc::SA_ONSTACK | libc::SA_RESTART,
            );
            timer(libc::ITIMER_REAL, 100);
            scene.check_all();
            // Of memory that is there it may be over before the first signal.
            while COUNTED.load(SeqCst) == 0 {
                scene.check_all();
            }
            timer(libc::ITIMER_REAL, 0);
            scene
        },
    },
    Row {
        name: "timers",
        does: "SIGALRM and SIGPROF every 100 µs, whose handlers touch maps",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let mut scene = Scene::new(kind);
            let (start, first) = (scene.addresses().start, word_of_second(&scene));
            TOUCHED.store(start as *mut u64, SeqCst);
            FIRST.store(first as usize, SeqCst);
            install(libc::SIGALRM, touch as *const () as usize, libc::SA_RESTART);
            install(libc::SIGPROF, touch as *const () as usize, libc::SA_RESTART);
            timer(libc::ITIMER_REAL, 100);
            timer(libc::ITIMER_PROF, 100);
            let mut rounds = 0;
            while rounds < 3 || COUNTED.load(SeqCst) == 0 {
                scene.check_all();
                if scene.is_writable() {
                    (2..scene.pages()).for_each(|page| scene.write(page));
                }
                rounds += 1;
            }
            timer(libc::ITIMER_REAL, 0);
            timer(libc::ITIMER_PROF, 0);
            assert_eq!(WRONG.load(SeqCst), 0);
            scene
        },
    },
    Row {
        name: "longjmp",
        does: "`siglongjmp` out of a handler that interrupted a touch",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            install(libc::SIGUSR1, jump as *const () as usize, libc::SA_RESTART);
            // SAFETY: only asks.
            let this = unsafe { libc::pthread_self() } as usize;
            let stop = std::sync::Arc::new(AtomicUsize::new(0));
            let stopped = stop.clone();
            let sender = std::thread::spawn(move || {
                while stopped.load(SeqCst) == 0 {
                    pause(50);
                    // SAFETY: that thread lives: it waits for this one.
                    unsafe { libc::pthread_kill(this as libc::pthread_t, libc::SIGUSR1) };
                }
            });
            let mut jumps = 0;
            let start = scene.addresses().start;
            for page in (0..scene.pages()).cycle().take(4 * scene.pages()) {
                jumps += usize::from(!touch_or_jump(start + page * PAGE));
            }
            stop.store(1, SeqCst);
            sender.join().expect("no panic");
            assert!(jumps > 0);
            scene
        },
    },
    Row {
        name: "cancel-deferred",
        does: "`pthread_cancel` of threads that touch, of the deferred type",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: "a touch is no cancellation point",
        play: |kind| cancelled(kind, 0),
    },
    Row {
        name: "cancel-asynchronous",
        does: "`pthread_cancel` of threads that touch, of the asynchronous type",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: "the thread ends after its touch",
        play: |kind| cancelled(kind, 1),
    },
    Row {
        name: "exit-in-handler",
        does: "a thread that ends in a handler (`SYS_exit`) which interrupted a touch",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            install(libc::SIGUSR1, leave as *const () as usize, 0);
            for round in 0..100 {
                let thread = toucher(&scene, round * 61, 2);
                pause(round as u64 * 20);
                // SAFETY: the thread is not joined: it leaves without the library's knowledge.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            }
            pause(100_000);
            scene
        },
    },
    Row {
        name: "stop-continue",
        does: "SIGSTOP and SIGCONT while threads fault",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            // SAFETY: only asks.
            let parent = unsafe { libc::getpid() };
            let child = crate::child::start(|| {
                for _ in 0..50 {
                    // SAFETY: stops the parent and continues it.
                    unsafe {
                        libc::kill(parent, libc::SIGSTOP);
                        libc::usleep(2000);
                        libc::kill(parent, libc::SIGCONT);
                        libc::usleep(2000);
                    }
                }
                0
            });
            scene.check_all();
            scene.check_all();
            assert_eq!(crate::child::wait(child), 0);
            scene
        },
    },
];

static COUNTED: AtomicUsize = AtomicUsize::new(0);
static WRONG: AtomicUsize = AtomicUsize::new(0);
static TOUCHED: AtomicPtr<u64> = AtomicPtr::new(core::ptr::null_mut());
/// The word that page 1 has to have.
static FIRST: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: i32) {
    COUNTED.fetch_add(1, SeqCst);
}

fn word_of_second(scene: &Scene) -> u64 {
    let addr = scene.addresses().start + PAGE;
    // SAFETY: within the map.
    unsafe { (addr as *const u64).read_volatile() }
}

/// Reads a word of page 1, which nobody writes, and of another.
extern "C" fn touch(_: i32) {
    let touched = COUNTED.fetch_add(1, SeqCst);
    let start = TOUCHED.load(SeqCst);
    // SAFETY: within the map, which lives.
    let found = unsafe {
        start
            .add((touched * 1021 % 8000) * PAGE / 8)
            .read_volatile();
        start.add(PAGE / 8).read_volatile()
    };
    if found != FIRST.load(SeqCst) as u64 {
        WRONG.fetch_add(1, SeqCst);
    }
}

extern "C" fn leave(_: i32) {
    // SAFETY: ends this thread; nothing of it is used again.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// The buffer for siglongjmp: larger than any system's `sigjmp_buf`.
#[repr(C, align(16))]
struct Jump([u64; 64]);

static mut BACK: Jump = Jump([0; 64]);
static ARMED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    fn siglongjmp(buffer: *mut Jump, value: i32) -> !;
}

extern "C" fn jump(_: i32) {
    if ARMED.load(SeqCst) == 1 {
        // SAFETY: the frame that filled it is still there, and has nothing to drop.
        unsafe { siglongjmp(&raw mut BACK, 1) };
    }
}

/// Reads words; false if a handler jumped out of it.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn touch_or_jump(addr: usize) -> bool {
    let said: i32;
    // The call of sigsetjmp, the touches and the end in one piece, of which the compiler need
    // not know that it returns twice.
    // SAFETY: the buffer is large enough; the touches are within the map.
    unsafe {
        core::arch::asm!(
            "push rbp",
            "push rbx",
            "mov rbx, rsp",
            "sub rsp, 256",
            "and rsp, -16",
            "mov [rsp], rsi",
            "mov [rsp + 8], rbx",
            "mov esi, 1",
            "call {sigsetjmp}",
            "test eax, eax",
            "jne 3f",
            "mov dword ptr [rip + {armed}], 1",
            "mov rsi, [rsp]",
            "mov ecx, 512",
            "2:",
            "mov rdx, [rsi]",
            "add rsi, 8",
            "dec ecx",
            "jne 2b",
            "mov dword ptr [rip + {armed}], 0",
            "3:",
            "mov dword ptr [rip + {armed}], 0",
            "mov rbx, [rsp + 8]",
            "mov rsp, rbx",
            "pop rbx",
            "pop rbp",
            sigsetjmp = sym __sigsetjmp,
            armed = sym ARMED,
            in("rdi") &raw mut BACK,
            in("rsi") addr,
            lateout("eax") said,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("C"),
        );
    }
    said == 0
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn __sigsetjmp(buffer: *mut Jump, save: i32) -> i32;
}

#[cfg(not(target_arch = "x86_64"))]
fn touch_or_jump(_: usize) -> bool {
    let _ = jump as extern "C" fn(i32);
    crate::row::skip("kernel", "not written for this processor")
}

fn block(signals: &[i32]) {
    // SAFETY: a valid set; this thread's mask.
    unsafe {
        let mut set = core::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, core::ptr::null_mut());
    }
}

pub fn install(signal: i32, handler: usize, flags: i32) {
    // SAFETY: the callers' handlers take one argument.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, core::ptr::null_mut()), 0);
    }
}

pub fn timer(which: i32, micros: i64) {
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: micros,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: sets a timer of this process.
    let set = unsafe { libc::syscall(libc::SYS_setitimer, which, &timer, 0_usize) };
    assert_eq!(set, 0);
}

pub fn pause(micros: u64) {
    std::thread::sleep(std::time::Duration::from_micros(micros));
}

unsafe extern "C" {
    fn pthread_setcanceltype(kind: i32, before: *mut i32) -> i32;
}

/// The orders of a touching thread.
struct Touching {
    start: usize,
    pages: usize,
    from: usize,
    /// How it may be cancelled; 2: not at all.
    how: i32,
}

/// Reads a word by one instruction. A thread that is cancelled at any instruction can be unwound only where its function has no
/// cleanup, and a check in `read_volatile` can be a call that has one.
///
/// # Safety
///
/// The word may be read.
#[inline(always)]
pub unsafe fn load(word: *const u64) -> u64 {
    let found;
    // SAFETY: the caller's promise; the instruction changes nothing but its register.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {0}, [{1}]", out(reg) found, in(reg) word, options(nostack, readonly));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("ldr {0}, [{1}]", out(reg) found, in(reg) word, options(nostack, readonly));
    }
    found
}

/// Starts a thread that touches page after page for ever; it has nothing to drop.
fn toucher(scene: &Scene, from: usize, how: i32) -> libc::pthread_t {
    start_toucher(scene.addresses().start, scene.pages(), from, how)
}

/// The same, of so many pages from an address on.
pub fn start_toucher(start: usize, pages: usize, from: usize, how: i32) -> libc::pthread_t {
    extern "C-unwind" fn run(touching: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: leaked for this thread.
        let touching = unsafe { &*touching.cast::<Touching>() };
        if touching.how < 2 {
            // SAFETY: this thread's.
            unsafe { pthread_setcanceltype(touching.how, core::ptr::null_mut()) };
        }
        let mut page = touching.from;
        loop {
            page = (page + 17) % touching.pages;
            // SAFETY: within the map, which lives longer.
            unsafe { load((touching.start + page * PAGE) as *const u64) };
            if touching.how == 0 && page % 1024 < 17 {
                // A cancellation point; signal 0 does nothing.
                // SAFETY: no arguments that matter.
                unsafe { libc::usleep(0) };
            }
        }
    }
    let touching = Box::leak(Box::new(Touching {
        start,
        pages,
        from,
        how,
    }));
    type Run = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;
    // SAFETY: a thread whose function may be unwound, as the C library calls it.
    unsafe {
        let run = core::mem::transmute::<
            extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void,
            Run,
        >(run);
        let mut thread = core::mem::zeroed();
        let made = libc::pthread_create(
            &mut thread,
            core::ptr::null(),
            run,
            core::ptr::from_mut(touching).cast(),
        );
        assert_eq!(made, 0);
        thread
    }
}

/// Many threads that are cancelled while they touch.
fn cancelled(kind: Kind, how: i32) -> Scene {
    let scene = Scene::new(kind);
    for round in 0..150 {
        let threads: Vec<_> = (0..3)
            .map(|each| toucher(&scene, round * 61 + each * 7, how))
            .collect();
        pause(round as u64 % 10 * 70);
        for thread in threads {
            // SAFETY: the thread lives: it was not joined.
            unsafe {
                assert_eq!(libc::pthread_cancel(thread), 0);
                assert_eq!(libc::pthread_join(thread, core::ptr::null_mut()), 0);
            }
        }
        (0..20).for_each(|page| scene.check((page * 41 + round) % scene.pages()));
    }
    scene
}
