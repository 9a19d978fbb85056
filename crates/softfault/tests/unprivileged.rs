//! A user without privileges, with little lockable memory.

mod child;
mod files;
mod nobody;

use files::{byte_at, check, made_file, path};
use nobody::{NOBODY, become_nobody, is_root};
use softfault::{AsyncReads, Engine};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

const LEN: usize = (24 << 20) + 321;

/// True if nobody could run this binary: the way to it may be closed.
fn nobody_may_run() -> bool {
    use std::os::unix::fs::PermissionsExt;
    let binary = std::env::current_exe().unwrap();
    binary.ancestors().all(|place| {
        let mode = place.metadata().unwrap().permissions().mode();
        mode & 0o001 != 0
    })
}

/// Starts the scenario as nobody, with the file as its standard input.
fn as_nobody(test: &str, scenario: &str, file: &File) {
    let mut command = child::command(test, scenario);
    command.stdin(Stdio::from(file.try_clone().unwrap()));
    if scenario.starts_with("exec") {
        command.uid(NOBODY).gid(NOBODY);
    }
    // SAFETY: makes system calls only.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: 8 << 20,
                rlim_max: 8 << 20,
            };
            match libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    };
    child::succeeds_with(&mut command, scenario);
}

#[test]
fn an_ordinary_user_maps_files_larger_than_the_budget() {
    let test = "an_ordinary_user_maps_files_larger_than_the_budget";
    let Some(scenario) = child::scenario() else {
        let file = made_file("nobody", LEN);
        if !is_root() {
            println!("not root: this user is the ordinary one");
            return everything(&file, AsyncReads::Auto);
        }
        let mut kinds = vec!["drop"];
        match nobody_may_run() {
            true => kinds.push("exec"),
            false => {
                softfault_skip::skipped(
                    "root",
                    format_args!("uid {NOBODY} may not reach the test's binary"),
                );
            }
        }
        for kind in kinds {
            for how in ["auto", "uring", "never"] {
                as_nobody(test, &format!("{kind} {how}"), &file);
            }
        }
        return;
    };
    if scenario.starts_with("drop") {
        become_nobody();
    }
    // SAFETY: only asks.
    let (uid, file) = unsafe { (libc::geteuid(), File::from_raw_fd(libc::dup(0))) };
    assert_eq!(uid, NOBODY);
    assert!(File::create(path("denied")).is_err(), "still privileged");
    let how = match scenario.split_once(' ').unwrap().1 {
        "auto" => AsyncReads::Auto,
        "uring" => AsyncReads::IoUring,
        _ => AsyncReads::Never,
    };
    everything(&file, how);
}

fn everything(file: &File, how: AsyncReads) {
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(8 << 20)
        .async_reads(how);
    let engine = engine.build().unwrap();
    // SAFETY: nobody writes to the file.
    let map = unsafe { engine.map(file) }.unwrap();
    assert!(map.is_managed());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let map = &map;
            scope.spawn(move || {
                for touch in 0..2000 {
                    check(map, (thread * 6_000_000 + touch * 4096) % LEN);
                    check(map, touch * 7_919_317 % LEN);
                }
            });
        }
    });
    let pinned = map.pin(1_000_000..1_500_000).unwrap();
    assert!((0..500_000).all(|at| pinned[at] == byte_at(1_000_000 + at)));
    drop(pinned);
    let mut copy = vec![0; 3 << 20];
    assert_eq!(map.read_at(&mut copy, 9_000_000).unwrap(), 3 << 20);
    assert!((0..3 << 20).all(|at| copy[at] == byte_at(9_000_000 + at)));
    map.prefetch(..).unwrap();
    map.invalidate(..).unwrap();
    check(&map, LEN - 1);
    let stats = engine.stats();
    println!("{how:?}: {:?}, fd {}", stats.async_reads, file.as_raw_fd());
    assert!(
        stats.evicted > 0 && stats.peak_bytes <= 8 << 20,
        "{stats:?}"
    );
    assert!(!stats.kernel_fallback);
    if how == AsyncReads::Never {
        assert_eq!((stats.async_reads, stats.readahead_pages), (None, 0));
    }
}
