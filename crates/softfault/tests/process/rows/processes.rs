//! Children, other identities, other surroundings, and the end.

use crate::call::{answer, madvise, part};
use crate::row::{Row, Verdict, skip};
use crate::scene::{Kind, PAGE, Scene};
use std::process::Command;

const NOBODY: u32 = 65534;

pub const ROWS: &[Row] = &[
    Row {
        name: "fork-exec",
        does: "`fork`, `vfork`, `posix_spawn`, `exec` while threads touch",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            std::thread::scope(|scope| {
                let touching = scope.spawn(|| (0..3).for_each(|_| scene.check_all()));
                let mut started = 0;
                while started < 20 || !touching.is_finished() {
                    assert!(Command::new("true").status().expect("started").success());
                    assert_eq!(crate::child::forked(|| 0), 0);
                    started += 1;
                }
            });
            scene
        },
    },
    Row {
        name: "fork-private",
        does: "`fork`, and the child goes on with private memory",
        kinds: &[Kind::Copy, Kind::Anon],
        verdict: Verdict::Right,
        then: "its own copy",
        play: |kind| {
            let mut scene = Scene::new(kind);
            let status = crate::child::forked(|| {
                scene.check_all();
                (0..scene.pages()).for_each(|page| scene.write(page));
                scene.check_all();
                0
            });
            assert_eq!(status, 0);
            scene
        },
    },
    Row {
        name: "fork-file",
        does: "`fork`, and the child goes on reading a map of a file",
        kinds: &[Kind::File],
        verdict: Verdict::Right,
        then: "the kernel maps the file in the child, outside of any budget",
        play: |kind| {
            let scene = Scene::new(kind);
            scene.check_all();
            let status = crate::child::forked(|| {
                scene.check_all();
                0
            });
            assert_eq!(status, 0);
            scene
        },
    },
    Row {
        name: "dofork-file",
        does: "`madvise(MADV_DOFORK)` on a map of a file, then `fork`",
        kinds: &[Kind::File],
        verdict: Verdict::Error,
        then: "SIGSEGV in the child, never zeros; the parent is right",
        play: |kind| {
            let scene = Scene::new(kind);
            scene.check_all();
            madvise(&scene.addresses(), libc::MADV_DOFORK).expect("DOFORK");
            let status = crate::child::forked(|| {
                // SAFETY: within the parent's map; it may be a SIGSEGV.
                let word = unsafe { (scene.addresses().start as *const u64).read_volatile() };
                i32::from(!scene.is_right(0, &[word]))
            });
            let right = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
            let dies = libc::WIFSIGNALED(status);
            assert!(
                right || dies,
                "the child has read something else: {status:#x}"
            );
            scene
        },
    },
    Row {
        name: "wipeonfork",
        does: "`madvise(MADV_WIPEONFORK)` on anonymous memory, then `fork`",
        kinds: &[Kind::Anon],
        verdict: Verdict::Error,
        then: "zeros or an error in the child, as the advice asks; the parent is right",
        play: |kind| {
            let scene = Scene::new(kind);
            madvise(&part(&scene, 0..200), libc::MADV_WIPEONFORK).expect("WIPEONFORK");
            (0..300).for_each(|page| scene.check(page));
            let status = crate::child::forked(|| {
                for page in 0..scene.pages() {
                    let at = scene.addresses().start + page * PAGE;
                    if page >= 200 {
                        scene.check(page);
                        continue;
                    }
                    // SAFETY: within the child's memory; it may be an error.
                    let word = unsafe { (at as *const u64).read_volatile() };
                    assert!(
                        word == 0 || scene.is_right(page, &[word]),
                        "page {page}: {word:#x}"
                    );
                }
                0
            });
            assert!(status == 0 || libc::WIFSIGNALED(status), "{status:#x}");
            if libc::WIFSIGNALED(status) {
                assert_ne!(libc::WTERMSIG(status), libc::SIGALRM, "hangs");
                assert_ne!(libc::WTERMSIG(status), libc::SIGABRT);
            }
            scene
        },
    },
    Row {
        name: "clone-vm",
        does: "`clone(CLONE_VM)`: another process with this memory touches it",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            for page in (0..scene.pages()).step_by(11) {
                let mut words = [0_u64; PAGE / 8];
                let addr = scene.addresses().start + page * PAGE;
                assert!(
                    crate::call::touched_elsewhere(addr, &mut words),
                    "page {page}"
                );
                assert!(scene.is_right(page, &words), "page {page}");
            }
            scene
        },
    },
    Row {
        name: "clone-bare",
        does: "a bare `clone` that runs no fork handlers",
        kinds: Kind::SERVED,
        verdict: Verdict::Error,
        then: "SIGSEGV in the child, never zeros",
        play: |kind| {
            let scene = Scene::new(kind);
            let start = scene.addresses().start;
            // SAFETY: a child that touches one word and ends.
            let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 };
            if child == 0 {
                // SAFETY: may be a SIGSEGV; ends the child.
                unsafe {
                    (start as *const u64).read_volatile();
                    libc::_exit(0)
                }
            }
            assert!(libc::WIFSIGNALED(crate::child::wait(child)));
            scene
        },
    },
    Row {
        name: "nobody",
        does: "`setgroups`, `setgid`, `setuid`: another user; no process can trace it",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            // SAFETY: changes the user of this process.
            unsafe {
                libc::setgroups(0, core::ptr::null());
                libc::setgid(NOBODY);
                if libc::geteuid() == 0 && libc::setuid(NOBODY) != 0 {
                    skip("root", "nobody cannot be");
                }
            }
            scene.check_all();
            scene
        },
    },
    Row {
        name: "prctl",
        does: "PR_SET_DUMPABLE 0, NO_NEW_PRIVS, THP_DISABLE, PDEATHSIG, CHILD_SUBREAPER, TIMERSLACK",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let before = Scene::new(kind);
            for (option, argument) in [
                (libc::PR_SET_DUMPABLE, 0),
                (libc::PR_SET_NO_NEW_PRIVS, 1),
                (libc::PR_SET_THP_DISABLE, 1),
                (libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize),
                (libc::PR_SET_CHILD_SUBREAPER, 1),
                (libc::PR_SET_TIMERSLACK, 1),
            ] {
                // SAFETY: attributes of this process.
                unsafe { libc::prctl(option, argument, 0_usize, 0_usize, 0_usize) };
                (0..500).for_each(|page| before.check(page));
            }
            before.check_all();
            Scene::new(kind)
        },
    },
    Row {
        name: "personality",
        does: "`personality` ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC before the engine",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            // SAFETY: attributes of this process.
            unsafe { libc::personality(0x0040000 | 0x0400000) };
            Scene::new(kind)
        },
    },
    Row {
        name: "namespaces",
        does: "`unshare` of NEWNS, NEWUSER, NEWPID, NEWIPC, NEWNET, FS, SYSVSEM; `chroot` to an empty folder, `umask(0777)`",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let before = Scene::new(kind);
            let path = empty_folder();
            // SAFETY: attributes of this process.
            unsafe {
                for what in [
                    libc::CLONE_FS,
                    libc::CLONE_SYSVSEM,
                    libc::CLONE_NEWNS,
                    libc::CLONE_NEWPID,
                    libc::CLONE_NEWIPC,
                    libc::CLONE_NEWNET,
                    libc::CLONE_NEWUSER,
                ] {
                    let _ = libc::unshare(what);
                }
                libc::umask(0o777);
                if libc::chroot(path.as_ptr()) == 0 {
                    libc::chdir(c"/".as_ptr());
                }
            }
            before.check_all();
            before
        },
    },
    Row {
        name: "chroot-then-map",
        does: "a map that is made after `chroot`, without `/proc`",
        kinds: &[Kind::File],
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let path = empty_folder();
            let engine = softfault::Engine::builder()
                .allow_kernel_maps(false)
                .memory(crate::scene::BUDGET)
                .build()
                .expect("an engine");
            // SAFETY: attributes of this process.
            let changed = unsafe { libc::chroot(path.as_ptr()) };
            if changed != 0 {
                skip("root", "only root changes the root");
            }
            Scene::of_file(engine, kind)
        },
    },
    Row {
        name: "scheduling",
        does: "`nice`, SCHED_IDLE, SCHED_BATCH, SCHED_FIFO, one processor only",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            // In a thread of its own: they are a thread's, and where the processor has anything else to do, one that is
            // idle gets a three hundredth of it. So it looks at some pages only.
            let some = || {
                (0..scene.pages())
                    .step_by(16)
                    .for_each(|page| scene.check(page))
            };
            let scheduled = || {
                // SAFETY: attributes of this thread.
                unsafe {
                    let mut one: libc::cpu_set_t = core::mem::zeroed();
                    libc::CPU_SET(0, &mut one);
                    libc::sched_setaffinity(0, size_of_val(&one), &one);
                    for policy in [libc::SCHED_BATCH, libc::SCHED_FIFO, libc::SCHED_IDLE] {
                        let mut parameter: libc::sched_param = core::mem::zeroed();
                        parameter.sched_priority = i32::from(policy == libc::SCHED_FIFO);
                        libc::sched_setscheduler(0, policy, &parameter);
                        match policy {
                            libc::SCHED_IDLE => some(),
                            _ => scene.check_all(),
                        }
                    }
                    libc::nice(19);
                }
                some();
            };
            std::thread::scope(|scope| scope.spawn(scheduled).join().expect("no panic"));
            scene
        },
    },
    Row {
        name: "core-dump",
        does: "`abort` with maps, and a core file",
        kinds: &[Kind::File, Kind::Copy, Kind::Anon, Kind::Soft],
        verdict: Verdict::Right,
        then: "the core has the pages of writable maps that were in memory; the others read as zeros there; it is not much larger than the budget",
        play: |kind| {
            let scene = Scene::new(kind);
            let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern");
            if pattern.is_ok_and(|pattern| pattern.contains(['/', '|'])) {
                skip("kernel", "core files go somewhere else");
            }
            dump(&scene);
            scene
        },
    },
    Row {
        name: "cgroup",
        does: "a move to another memory cgroup with a limit",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            let memory = std::path::Path::new("/sys/fs/cgroup/memory");
            let group = memory.join(format!("softfault-{}", std::process::id()));
            let made = std::fs::create_dir(&group)
                .and_then(|()| std::fs::write(group.join("memory.limit_in_bytes"), "256M"))
                .and_then(|()| {
                    std::fs::write(group.join("cgroup.procs"), std::process::id().to_string())
                });
            if made.is_err() {
                let _ = std::fs::remove_dir(&group);
                skip(
                    "root",
                    "no memory cgroups of the first kind to be made here",
                );
            }
            scene.check_all();
            scene.check_all();
            std::fs::write(memory.join("cgroup.procs"), std::process::id().to_string())
                .expect("back");
            std::fs::remove_dir(&group).expect("an empty group");
            scene
        },
    },
];

/// A child that shares this memory dumps it: no fork handlers, no copy of missing pages.
fn dump(scene: &Scene) {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("core-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let any = libc::rlimit {
        rlim_cur: 8 << 30,
        rlim_max: libc::RLIM_INFINITY,
    };
    let status = crate::child::forked(|| {
        std::env::set_current_dir(&folder).expect("the folder");
        // SAFETY: a limit of this process, and its end.
        unsafe {
            answer(libc::setrlimit(libc::RLIMIT_CORE, &any)).expect("a limit");
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
            if matches!(scene.kind(), Kind::Copy | Kind::Anon) {
                (0..500).for_each(|page| scene.check(page));
            }
            libc::signal(libc::SIGABRT, libc::SIG_DFL);
            libc::raise(libc::SIGABRT);
        }
        0
    });
    let cores = std::fs::read_dir(&folder).expect("the folder").flatten();
    let sizes: Vec<_> = cores
        .map(|core| {
            use std::os::unix::fs::MetadataExt;
            core.metadata().map_or(0, |of| of.blocks() * 512)
        })
        .collect();
    std::fs::remove_dir_all(&folder).expect("removed");
    assert!(libc::WIFSIGNALED(status), "{status:#x}");
    println!("a core of {sizes:?} bytes on the disk");
    assert!(sizes.iter().all(|&bytes| bytes < 512 << 20), "{sizes:?}");
    assert!(!libc::WCOREDUMP(status) || sizes.len() == 1);
}

/// An empty folder to be a root. One for all: a process that has it for its root cannot remove it, and one for each
/// would be found again by a later process of that number.
fn empty_folder() -> std::ffi::CString {
    let empty = std::env::temp_dir().join("softfault-empty");
    std::fs::create_dir_all(&empty).expect("a folder");
    std::ffi::CString::new(empty.to_str().expect("a path")).expect("a path")
}
