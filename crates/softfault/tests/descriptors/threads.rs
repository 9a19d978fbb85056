//! Threads that touch while others close, that have tables of their own, and that outlive
//! the first.

use crate::scene::{PAGE, PAGES, Scene};
use crate::{alone, close_from, files, ours};
use softfault_oracle::Finally;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn threads_touch_while_one_closes_all() {
    alone(|| {
        let scene = Scene::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let (scene, stop) = (&scene, &stop);
                threads.spawn(move || {
                    let mut page = thread * 1000;
                    while !stop.load(Ordering::Relaxed) {
                        page = (page * 5 + 7) % PAGES;
                        files::check(&scene.map, page * PAGE + page % PAGE);
                    }
                });
            }
            let _end = Finally(|| stop.store(true, Ordering::Relaxed));
            for _ in 0..300 {
                close_from(3);
                // The program's next file gets a number that was ours a moment ago.
                let file = std::fs::File::open("/dev/null").unwrap();
                std::thread::yield_now();
                // Closed with all others.
                std::mem::forget(file);
            }
        });
        scene.check(1);
    });
}

#[test]
fn a_thread_with_a_table_of_its_own() {
    alone(|| {
        let scene = Scene::new();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                // SAFETY: this thread's table is its own from here on.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
                close_from(3);
                scene.check(1);
                let mut there = 0;
                for round in 0..10 {
                    scene.check(3);
                    let all = std::fs::read_dir("/proc/thread-self/fd").unwrap().count();
                    assert!(round == 0 || all == there, "{there} numbers, then {all}");
                    there = all;
                }
            });
        });
        scene.check(1);
        let before = ours().len();
        scene.check(1);
        assert_eq!(ours().len(), before);
    });
}

/// musl has no contexts to end a thread on (see `end_this_thread`).
#[cfg(target_env = "gnu")]
#[test]
fn the_process_ends_when_its_threads_have() {
    // SAFETY: the child ends by its threads' ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a child that hangs is killed.
        unsafe { libc::alarm(300) };
        let scene = Scene::new();
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            close_from(3);
            scene.check(1);
            println!("the last thread is done");
        });
        end_this_thread();
    }
    assert_eq!(crate::child::wait(child), 0);
}

/// `pthread_exit(3)`, on a stack on which no frame of Rust's objects to being unwound.
#[cfg(target_env = "gnu")]
fn end_this_thread() -> ! {
    unsafe extern "C" {
        fn pthread_exit(value: *mut core::ffi::c_void) -> !;
    }
    extern "C" fn exit() {
        // SAFETY: nothing on this stack has to be dropped.
        unsafe { pthread_exit(core::ptr::null_mut()) }
    }
    let stack = vec![0_u8; 1 << 20].leak();
    // SAFETY: a context that is filled, with a stack of its own.
    unsafe {
        let mut context: libc::ucontext_t = core::mem::zeroed();
        libc::getcontext(&mut context);
        context.uc_stack.ss_sp = stack.as_mut_ptr().cast();
        context.uc_stack.ss_size = stack.len();
        libc::makecontext(&mut context, exit, 0);
        libc::setcontext(&context);
    }
    unreachable!("the thread has ended")
}
