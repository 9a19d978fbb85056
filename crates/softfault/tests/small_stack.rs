//! The handler's need of the stack that it runs on.
//!
//! The stacks here are painted before use, so that afterwards the deepest byte
//! written is known; an empty handler of another signal tells the part of that which is
//! the kernel's.

mod child;
mod files;
mod stacks;

use files::{byte_at, made_file};
use softfault::{Advice, AsyncReads, Engine, Mmap};
use softfault_oracle::Random;
use stacks::{Stack, on_stack};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// The promise of `faults/handler.rs`: bytes on top of the kernel's frame.
const HANDLER_STACK: usize = 3072;
/// The stack of a fault that neither reads ahead nor evicts, and of the handler of the test that touches.
const ONE_MISS: usize = 2048;
/// The least stack that POSIX threads have here.
const SMALL: usize = 16 << 10;

/// Touches for a thread on a small stack, which must not panic there.
struct Touches<'a> {
    map: &'a Mmap,
    offsets: &'a [usize],
    wrong: AtomicUsize,
}

impl<'a> Touches<'a> {
    fn new(map: &'a Mmap, offsets: &'a [usize]) -> Self {
        let wrong = AtomicUsize::new(0);
        Self {
            map,
            offsets,
            wrong,
        }
    }

    fn touch(&self) {
        for &offset in self.offsets {
            // SAFETY: the offsets are within the map.
            let found = unsafe { self.map.as_ptr().add(offset).read_volatile() };
            if found != byte_at(offset) {
                self.wrong.fetch_add(1, Relaxed);
            }
        }
    }
}

/// Touches on a small stack; returns how deep the stack was used.
fn depth_of(map: &Mmap, offsets: &[usize]) -> usize {
    let touches = Touches::new(map, offsets);
    let depth = on_stack(&Stack::new(SMALL), &|| touches.touch());
    assert_eq!(touches.wrong.load(Relaxed), 0);
    depth
}

fn random(len: usize, count: usize) -> Vec<usize> {
    let mut random = Random::new(7);
    (0..count).map(|_| random.below(len)).collect()
}

#[test]
fn the_handler_keeps_to_its_bound() {
    // The kernel's frame begins at a multiple of 64 bytes: with what is left out before it, it is the largest of four.
    let frames = (0..4).map(|place| Stack::new(SMALL + place * 16));
    let frames = frames.map(|stack| on_stack(&stack, &|| stacks::empty_signal()));
    let kernel = frames.max().expect("four of them");
    let file = made_file("bound", 32 << 20);
    let mut most = 0;
    let mut note = |what: &str, (reads, policies): (AsyncReads, &str), depth: usize| {
        let depth_here = depth.saturating_sub(kernel);
        println!("{reads:?} {policies} {what}: {depth_here} bytes");
        most = most.max(depth.saturating_sub(kernel));
    };
    for how in [
        (AsyncReads::Auto, ""),
        (AsyncReads::IoUring, ""),
        (AsyncReads::Never, ""),
        (AsyncReads::Auto, "retry=mmap-lock+pin=no+miss=baseline"),
        (AsyncReads::Never, "retry=held+miss=both"),
    ] {
        let engine = Engine::builder()
            .allow_kernel_maps(false)
            .memory(8 << 20)
            .async_reads(how.0);
        let policies = how.1.parse().unwrap();
        let engine = engine.policies(policies).build().unwrap();
        // SAFETY: nobody writes to the file.
        let map = unsafe { engine.map(&file) }.unwrap();
        note("one miss", how, depth_of(&map, &[5 << 20]));
        map.pin((5 << 20)..(5 << 20) + 4096).unwrap();
        map.prefetch(7 << 20..(7 << 20) + (64 << 10)).unwrap();
        while map.residency(7 << 20..(7 << 20) + 4096).unwrap().reading > 0 {}
        note("a hit, if read ahead", how, depth_of(&map, &[7 << 20]));
        let order: Vec<_> = (0..map.len()).step_by(4096).collect();
        note("in order, evicting", how, depth_of(&map, &order));
        let stride: Vec<_> = (0..4000).map(|i| i * 1021 * 4096 % map.len()).collect();
        note("strided", how, depth_of(&map, &stride));
        note("random", how, depth_of(&map, &random(map.len(), 4000)));
        // All have the same gaps: read-ahead sees the file without them.
        let pages = (0..map.len() / 4096).filter(|page| page % 8 < 3);
        let gaps: Vec<_> = pages.map(|page| page * 4096).collect();
        let drawn = random(gaps.len(), 4000).into_iter();
        let drawn: Vec<_> = drawn.map(|at| gaps[at]).collect();
        note("with gaps, random", how, depth_of(&map, &drawn));
        note("with gaps, in order", how, depth_of(&map, &gaps));
        map.advise(Advice::Sequential).unwrap();
        note("advised", how, depth_of(&map, &order));
        assert!(engine.stats().evicted > 0, "nothing was evicted");
    }
    println!("the kernel's frame: {kernel} bytes; on top of it: {most}");
    assert!(most > 0, "the handler was not seen to run");
    assert!(most <= HANDLER_STACK, "{most} bytes");
}

extern "C" fn touch_all(touches: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the test handed it over and waits.
    unsafe { &*touches.cast::<Touches<'_>>() }.touch();
    core::ptr::null_mut()
}

#[test]
fn many_threads_on_small_stacks_read_right() {
    const THREADS: usize = 128;
    let file = made_file("threads", 32 << 20);
    let engine = files::engine(12 << 20);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    let offsets: Vec<Vec<usize>> = (0..THREADS)
        .map(|thread| match thread % 3 {
            0 => random(map.len(), 150),
            1 => (0..150).map(|i| (thread << 17) + i * 4096).collect(),
            _ => (0..150)
                .map(|i| (i * 37 + thread) * 4096 % map.len())
                .collect(),
        })
        .collect();
    let touches: Vec<_> = offsets
        .iter()
        .map(|offsets| Touches::new(&map, offsets))
        .collect();
    let stacks: Vec<_> = (0..THREADS).map(|_| Stack::new(SMALL)).collect();
    let threads: Vec<_> = stacks
        .iter()
        .zip(&touches)
        .map(|(stack, touches)| {
            let touches = core::ptr::from_ref(touches).cast_mut();
            stacks::start(stack, touch_all, touches.cast())
        })
        .collect();
    for thread in threads {
        // SAFETY: joined once.
        unsafe { libc::pthread_join(thread, core::ptr::null_mut()) };
    }
    let wrong: usize = touches.iter().map(|one| one.wrong.load(Relaxed)).sum();
    assert_eq!(wrong, 0);
    let stats = engine.stats();
    assert!(stats.evicted > 0 && stats.major_faults > 0, "{stats:?}");
    assert!(stats.peak_bytes <= 12 << 20, "{stats:?}");
}

static TOUCHES: AtomicPtr<Touches<'static>> = AtomicPtr::new(core::ptr::null_mut());

extern "C" fn user_handler(_: libc::c_int) {
    // SAFETY: set by the test, which waits for the signal.
    unsafe { &*TOUCHES.load(Relaxed) }.touch();
}

/// Touches in a handler of the user's that runs on an alternate stack of
/// `bytes`; returns how much of that was used.
fn touch_on_alternate_stack(bytes: usize, map: &Mmap, offsets: &[usize]) -> usize {
    let touches = Touches::new(map, offsets);
    TOUCHES.store(core::ptr::from_ref(&touches).cast_mut().cast(), Relaxed);
    let stack = Stack::new(bytes);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the stack outlives the thread; the handler suits its
            // flags; the alternate stack is taken off before the thread ends.
            unsafe {
                let mut before: libc::stack_t = core::mem::zeroed();
                let ours = libc::stack_t {
                    ss_sp: stack.low().cast(),
                    ss_flags: 0,
                    ss_size: stack.bytes(),
                };
                assert_eq!(libc::sigaltstack(&ours, &mut before), 0);
                let mut action: libc::sigaction = core::mem::zeroed();
                action.sa_sigaction = user_handler as *const () as usize;
                action.sa_flags = libc::SA_ONSTACK;
                libc::sigaction(libc::SIGUSR1, &action, core::ptr::null_mut());
                libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1);
                assert_eq!(libc::sigaltstack(&before, core::ptr::null_mut()), 0);
            }
        });
    });
    assert_eq!(touches.wrong.load(Relaxed), 0);
    stack.used()
}

/// The size of the alternate stack that Rust's standard library installs in each of its threads.
fn size_of_std() -> usize {
    // SAFETY: only asks.
    let least = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    least.max(libc::SIGSTKSZ)
}

#[test]
fn a_handler_on_an_alternate_stack_may_touch_a_map() {
    let test = "a_handler_on_an_alternate_stack_may_touch_a_map";
    let Some(scenario) = child::scenario() else {
        child::succeeds(test, "16 KiB");
        return child::succeeds(test, "as std");
    };
    let file = made_file("alternate", 32 << 20);
    let engine = files::engine(8 << 20);
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(&file) }.unwrap();
    let bytes = match scenario.as_str() {
        "as std" => size_of_std(),
        _ => 16 << 10,
    };
    // Two signals are on it: the program's, and ours.
    let kernels = 2 * on_stack(&Stack::new(SMALL), &|| stacks::empty_signal());
    if kernels + ONE_MISS > bytes {
        println!(
            "{kernels} bytes of {bytes} are the kernel's here: too few are left for any fault"
        );
        return;
    }
    let order: Vec<_> = (0..map.len()).step_by(4096).collect();
    let stride: Vec<_> = (0..4000).map(|i| i * 1021 * 4096 % map.len()).collect();
    let all = [vec![5 << 20], order, stride, random(map.len(), 2000)];
    // The handler's frame, ours and twice the kernel's are more than std's
    // stacks where processors have large registers (AVX-512): only a
    // fault that neither reads ahead nor evicts is sure to fit there.
    let sure = match scenario.as_str() {
        "as std" => {
            map.advise(Advice::Random).unwrap();
            &all[..1]
        }
        _ => &all[..],
    };
    for offsets in sure {
        let used = touch_on_alternate_stack(bytes, &map, offsets);
        println!("{} touches: {used} of {bytes} bytes", offsets.len());
    }
    assert!(engine.stats().evicted > 0 || sure.len() == 1);
}
