//! SIGBUS handlers that a program installs after ours, in processes of their own.

mod child;
mod files;

use child::{assert_exit, forked};
use files::{check, made_file, map};
use softfault::{Engine, Mmap};
use softfault_engine::PAGE_SIZE;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const PAGES: usize = 64;

fn engine() -> Engine {
    files::engine(8 << 20)
}

/// An engine and a map, of which nothing was touched.
fn scene(name: &str) -> (Engine, File, Mmap) {
    let file = made_file(name, PAGES * PAGE_SIZE);
    let engine = engine();
    let map = map(&engine, &file);
    map.advise(softfault::Advice::Random).unwrap();
    (engine, file, map)
}

/// Puts a handler in force, and returns the former one.
fn install(flags: i32, handler: usize) -> libc::sigaction {
    // SAFETY: the callers' handlers suit their flags; the second is filled.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        let mut before = MaybeUninit::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        let answer = libc::sigaction(libc::SIGBUS, &action, before.as_mut_ptr());
        assert_eq!(answer, 0);
        before.assume_init()
    }
}

/// An address where a read raises a SIGBUS that nobody serves.
fn foreign_page() -> *const u8 {
    let file = made_file("foreign", PAGE_SIZE);
    // SAFETY: a mapping at the kernel's choice; past the end of the file.
    unsafe {
        let start = libc::mmap(
            core::ptr::null_mut(),
            2 * PAGE_SIZE,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        start.cast::<u8>().add(PAGE_SIZE)
    }
}

fn touch(page: *const u8) {
    // SAFETY: mapped; the result is the test's.
    unsafe { page.read_volatile() };
}

/// The handlers that were in force before a reporter.
static BEFORE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static REPORTED: AtomicUsize = AtomicUsize::new(0);

/// Does as Python's faulthandler: the former handler is put back, the signal is
/// raised, and the handler returns.
extern "C" fn report_and_raise(signal: i32) {
    REPORTED.fetch_add(1, SeqCst);
    install(BEFORE[1].load(SeqCst) as i32, BEFORE[0].load(SeqCst));
    // SAFETY: raises a signal in this thread.
    unsafe { libc::raise(signal) };
}

fn enable_reporter(flags: i32) {
    let before = install(flags, report_and_raise as *const () as usize);
    BEFORE[0].store(before.sa_sigaction, SeqCst);
    BEFORE[1].store(before.sa_flags as usize, SeqCst);
}

#[test]
fn a_reporter_that_raises_again_is_returned_to() {
    if cfg!(not(target_arch = "x86_64")) {
        let why = "a raised SIGBUS is told from a fault by the frame of an x86-64 signal";
        return softfault_skip::skipped("processor", why);
    }
    let test = "a_reporter_that_raises_again_is_returned_to";
    match child::scenario().as_deref() {
        None => {
            child::succeeds(test, "touches");
            child::dies_of(libc::SIGBUS, test, "then raises");
            child::dies_of(libc::SIGBUS, test, "raises in a handler");
            child::dies_of(libc::SIGBUS, test, "not ours");
        }
        Some("not ours") => {
            install(0, libc::SIG_DFL);
            let (_engine, _file, _map) = scene("not-ours");
            enable_reporter(libc::SA_NODEFER);
            touch(foreign_page());
        }
        Some("raises in a handler") => {
            // The signal that the handler raises is no fault of softfault's, and has its default effect.
            install(0, libc::SIG_DFL);
            let (_engine, _file, map) = scene("in-a-handler");
            check(&map, 0);
            extern "C" fn raises(_: i32) {
                // SAFETY: raises a signal in this thread.
                unsafe { libc::raise(libc::SIGBUS) };
            }
            // SAFETY: a handler for a signal that is raised below.
            unsafe {
                libc::signal(libc::SIGUSR1, raises as *const () as usize);
                libc::raise(libc::SIGUSR1);
            }
        }
        Some(how) => {
            // Rust's own would take the first signal that is sent for a fault.
            install(0, libc::SIG_DFL);
            let (_engine, _file, map) = scene("reporter");
            check(&map, 0);
            for (round, page) in (1..10).enumerate() {
                enable_reporter(libc::SA_NODEFER);
                check(&map, page * PAGE_SIZE + 5);
                assert_eq!(REPORTED.load(SeqCst), round + 1, "it was not in front");
                // It is out of the way now.
                check(&map, (page + 20) * PAGE_SIZE);
                assert_eq!(REPORTED.load(SeqCst), round + 1);
            }
            if how == "then raises" {
                // SAFETY: raises a signal in this thread.
                unsafe { libc::raise(libc::SIGBUS) };
            }
        }
    }
}

static SEEN: AtomicUsize = AtomicUsize::new(0);

/// Ends the process at a signal that is not expected of it.
extern "C" fn crash(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's, or the one that we pass on.
    let addr = unsafe { (*info).si_addr() } as usize;
    let expected = SEEN.load(SeqCst) == addr;
    // SAFETY: ends the process.
    unsafe { libc::_exit(if expected { 42 } else { 43 }) };
}

#[test]
fn a_later_handler_is_put_behind_ours_and_gets_foreign_signals() {
    let test = "a_later_handler_is_put_behind_ours_and_gets_foreign_signals";
    let ways = ["map", "advise", "stats", "fork"];
    let Some(how) = child::scenario() else {
        for how in ways {
            let output = child::run(test, how);
            assert_eq!(output.status.code(), Some(42), "{how}");
        }
        return;
    };
    let (engine, file, map) = scene("in-front");
    install(libc::SA_SIGINFO, crash as *const () as usize);
    match how.as_str() {
        "map" => drop(self::map(&engine, &file)),
        "advise" => map.advise(softfault::Advice::Random).unwrap(),
        "stats" => drop(engine.stats()),
        _ => assert_eq!(forked(|| 0), 0),
    }
    for page in 0..PAGES {
        check(&map, page * PAGE_SIZE + 9);
    }
    let page = foreign_page();
    SEEN.store(page as usize, SeqCst);
    touch(page);
    unreachable!();
}

/// Passes the signal on to the former handler, as a handler that is written to do so.
extern "C" fn chains(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if REPORTED.fetch_add(1, SeqCst) > 50 {
        // SAFETY: ends the process: the signal goes round in a circle.
        unsafe { libc::_exit(3) };
    }
    // SAFETY: ours, which was there before it.
    let before: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
        unsafe { core::mem::transmute(BEFORE[0].load(SeqCst)) };
    before(signal, info, context);
}

#[test]
fn a_handler_that_passes_on_to_ours_makes_no_circle() {
    let test = "a_handler_that_passes_on_to_ours_makes_no_circle";
    let Some(how) = child::scenario() else {
        child::dies_of(libc::SIGBUS, test, "once");
        child::dies_of(libc::SIGBUS, test, "twice");
        return;
    };
    // The handler that Rust's library has put in force is not the one tested here.
    install(0, libc::SIG_DFL);
    let (engine, file, map) = scene("circle");
    let times = if how == "once" { 1 } else { 2 };
    for round in 0..times {
        let before = install(libc::SA_SIGINFO, chains as *const () as usize);
        BEFORE[0].store(before.sa_sigaction, SeqCst);
        check(&map, round * 3 * PAGE_SIZE);
        drop(self::map(&engine, &file));
        check(&map, (round * 3 + 1) * PAGE_SIZE);
    }
    assert!(REPORTED.load(SeqCst) <= 2, "{REPORTED:?}");
    touch(foreign_page());
    unreachable!();
}

/// Failed before: each of these installations used up a form of ours, and after the last the touch went to the program's.
#[test]
fn a_program_saves_and_restores_its_handler_any_number_of_times() {
    let test = "a_program_saves_and_restores_its_handler_any_number_of_times";
    let Some(how) = child::scenario() else {
        for how in ["saves", "chains"] {
            let output = child::run(test, how);
            assert_eq!(output.status.code(), Some(42), "{how}");
        }
        return;
    };
    install(libc::SA_SIGINFO, crash as *const () as usize);
    let (engine, file, map) = scene("saved");
    for round in 0..50 {
        if how == "saves" {
            let before = install(0, report_and_raise as *const () as usize);
            engine.stats();
            install(before.sa_flags, before.sa_sigaction);
            install(libc::SA_SIGINFO, crash as *const () as usize);
        } else {
            // The handler has one predecessor, which is a form that passes on to this handler: no circle.
            let before = install(libc::SA_SIGINFO, chains as *const () as usize);
            BEFORE[0].store(before.sa_sigaction, SeqCst);
        }
        check(&self::map(&engine, &file), round * PAGE_SIZE);
    }
    check(&map, 60 * PAGE_SIZE);
    let page = foreign_page();
    SEEN.store(page as usize, SeqCst);
    touch(page);
    unreachable!();
}

/// Puts `crash` in force, masking one more signal each time: each time another handler.
fn install_another(number: usize) {
    // SAFETY: the handler suits its flags.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = crash as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        (1..=number as i32).for_each(|signal| _ = libc::sigaddset(&mut action.sa_mask, signal));
        let answer = libc::sigaction(libc::SIGBUS, &action, core::ptr::null_mut());
        assert_eq!(answer, 0);
    }
}

/// Nobody wins for ever: the one that puts up another handler each time keeps it at last, and
/// `map` says so.
#[test]
fn two_that_insist_come_to_an_end() {
    let test = "two_that_insist_come_to_an_end";
    if child::scenario().is_none() {
        return child::succeeds(test, "insist");
    }
    let (engine, file, _map) = scene("insist");
    let refused = (0..30).find_map(|number| {
        install_another(number);
        // SAFETY: nobody writes to the file.
        unsafe { engine.map(&file) }.err()
    });
    let refused = refused.expect("thirty times in front");
    assert!(refused.to_string().contains("SIGBUS handler"), "{refused}");
    assert!(!softfault::reinstall_handler());
}

/// Rust's own handler takes itself out at a signal that it does not know.
#[test]
fn a_sigbus_that_was_sent_does_not_end_the_serving() {
    let test = "a_sigbus_that_was_sent_does_not_end_the_serving";
    let Some(how) = child::scenario() else {
        child::succeeds(test, "once");
        child::dies_of(libc::SIGBUS, test, "twice");
        return;
    };
    let (_engine, _file, map) = scene("sent");
    check(&map, 0);
    let send = || {
        // SAFETY: sends this process a signal, which this thread or another gets.
        unsafe { libc::kill(libc::getpid(), libc::SIGBUS) };
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    send();
    for page in 0..PAGES {
        check(&map, page * PAGE_SIZE);
    }
    if how == "twice" {
        // The default action comes to whichever thread it comes to. Again and again: one that is sent while the
        // first is pending yet is lost.
        (0..1200).for_each(|_| send());
    }
}

/// Says so and returns, as the kernel gives it one signal only.
extern "C" fn reports_once(_: i32) {
    if REPORTED.fetch_add(1, SeqCst) > 0 {
        // SAFETY: ends the process: it was called again.
        unsafe { libc::_exit(3) };
    }
    // SAFETY: writes bytes of a literal.
    unsafe { libc::write(2, c"reported".as_ptr().cast(), 8) };
}

#[test]
fn a_handler_for_one_signal_gets_one() {
    use std::os::unix::process::ExitStatusExt;
    let test = "a_handler_for_one_signal_gets_one";
    let Some(how) = child::scenario() else {
        for how in ["before the engine", "after it", "told to it"] {
            let output = child::run(test, how);
            assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{how}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(said.matches("reported").count(), 1, "{how}");
        }
        return;
    };
    let handler = reports_once as *const () as usize;
    if how == "before the engine" {
        install(libc::SA_RESETHAND, handler);
    }
    let (engine, file, map) = scene("one-signal");
    check(&map, 0);
    match how.as_str() {
        "after it" => {
            install(libc::SA_RESETHAND, handler);
            drop(self::map(&engine, &file));
        }
        "told to it" => {
            // SAFETY: a sigaction of zeros is valid.
            let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
            action.sa_sigaction = handler;
            action.sa_flags = libc::SA_RESETHAND;
            assert!(softfault::program_sigbus(Some(&action)).is_some());
        }
        _ => {}
    }
    touch(foreign_page());
    unreachable!();
}

/// Does as `report_and_raise`, by calls that are reported, as under `softfault run`.
extern "C" fn raises_once_more(signal: i32) {
    // SAFETY: a sigaction of zeros is valid, and is the default; raises a signal in this thread.
    unsafe {
        softfault::program_sigbus(Some(&core::mem::zeroed()));
        libc::raise(signal);
    }
}

#[test]
fn a_raised_signal_is_no_fault_where_no_handler_is_in_front() {
    let test = "a_raised_signal_is_no_fault_where_no_handler_is_in_front";
    if child::scenario().is_none() {
        return child::dies_of(libc::SIGBUS, test, "child");
    }
    softfault::set_sigbus_calls_intercepted();
    install(0, libc::SIG_DFL);
    let mut map = engine().map_anon(PAGES * PAGE_SIZE).unwrap();
    // SAFETY: a sigaction of zeros is valid.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = raises_once_more as *const () as usize;
    action.sa_flags = libc::SA_NODEFER;
    // Served; the contexts of later signals still have its address, and it was a write.
    map[PAGE_SIZE] = 1;
    assert!(softfault::program_sigbus(Some(&action)).is_some());
    // SAFETY: raises a signal in this thread.
    unsafe { libc::raise(libc::SIGBUS) };
}

static OF_CHILD: AtomicBool = AtomicBool::new(false);

extern "C" fn of_child(_: i32) {
    OF_CHILD.store(true, SeqCst);
    // SAFETY: ends the child.
    unsafe { libc::_exit(42) };
}

/// A child of a process that had an engine, with a handler and then an engine of its own.
#[test]
fn a_childs_own_handler_gets_foreign_signals() {
    let test = "a_childs_own_handler_gets_foreign_signals";
    if child::scenario().is_none() {
        return child::succeeds(test, "child");
    }
    let (_engine, file, map) = scene("childs-own");
    check(&map, 0);
    for own in [true, false] {
        let status = forked(|| {
            let private = made_file("childs-own-2", PAGE_SIZE);
            install(0, of_child as *const () as usize);
            if own {
                let engine = engine();
                check(&self::map(&engine, &file), 3 * PAGE_SIZE);
            }
            drop(private);
            touch(foreign_page());
            1
        });
        assert_exit(status, 42);
    }
    // The parent's are not changed by it.
    check(&map, 5 * PAGE_SIZE);
    assert_exit(forked(|| 7), 7);
}
