//! Limits of the process.

use crate::call::answer;
use crate::row::{Row, Verdict, skip};
use crate::scene::{BUDGET, BYTES, Kind, Scene, file};
use softfault::Engine;
use std::os::unix::fs::FileExt;

pub const ROWS: &[Row] = &[
    Row {
        name: "rlimits",
        does: "RLIMIT_STACK, NPROC, MEMLOCK, SIGPENDING, CORE, RTPRIO as low as they go",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            for what in [
                libc::RLIMIT_STACK,
                libc::RLIMIT_NPROC,
                libc::RLIMIT_MEMLOCK,
                libc::RLIMIT_SIGPENDING,
                libc::RLIMIT_CORE,
                libc::RLIMIT_RTPRIO,
            ] {
                limit(what, 0);
                scene.check_all();
            }
            scene
        },
    },
    Row {
        name: "rlimit-as",
        does: "RLIMIT_AS, RLIMIT_DATA of 0 after all pages of the maps were touched",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "new maps are an error",
        play: |kind| {
            let scene = Scene::new(kind);
            scene.check_all();
            limit(libc::RLIMIT_DATA, 0);
            scene.check_all();
            limit(libc::RLIMIT_AS, 0);
            scene.check_all();
            limit(libc::RLIMIT_DATA, libc::RLIM_INFINITY);
            limit(libc::RLIMIT_AS, libc::RLIM_INFINITY);
            scene
        },
    },
    Row {
        name: "rlimit-as-before",
        does: "RLIMIT_AS of 1 GiB before the engine is built",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "or an error at `build`",
        play: |kind| {
            limit(libc::RLIMIT_AS, 1 << 30);
            Scene::new(kind)
        },
    },
    Row {
        name: "rlimit-fsize",
        does: "RLIMIT_FSIZE smaller than swap, after the maps; SIGXFSZ has its default action",
        kinds: &[Kind::File, Kind::Huge],
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            limit(libc::RLIMIT_FSIZE, 1 << 20);
            scene
        },
    },
    Row {
        name: "rlimit-fsize-kernels",
        does: "RLIMIT_FSIZE smaller than a file that the kernel serves, which is to be kept in memory",
        kinds: &[Kind::File],
        verdict: Verdict::Right,
        then: "the kernel serves it on",
        play: |kind| {
            // In the page cache; by offset, since all rows have one open file.
            let mut bytes = vec![0; BYTES];
            let warm = file().read_exact_at(&mut bytes, 0);
            warm.expect("read to its end");
            let engine = Engine::builder().memory(BUDGET).build();
            let scene = Scene::of_file(engine.expect("an engine"), kind);
            if scene.engine().stats().kernel.switched_to_kernel == 0 {
                skip(
                    "kernel",
                    "the page cache does not tell of its pages, or has no room",
                );
            }
            limit(libc::RLIMIT_FSIZE, 1 << 20);
            scene.map().lock().expect("locked by the kernel");
            scene.check_all();
            scene.map().unlock().expect("unlocked");
            limit(libc::RLIMIT_FSIZE, libc::RLIM_INFINITY);
            // The last scene is the engine's: pages go and come.
            drop(scene);
            Scene::new(kind)
        },
    },
    Row {
        name: "rlimit-fsize-soft",
        does: "the same over soft page tables",
        kinds: &[Kind::Soft],
        verdict: Verdict::Error,
        then: "calls return `NoMemory` when nothing more can be swapped",
        play: |kind| {
            let mut scene = Scene::new(kind);
            limit(libc::RLIMIT_FSIZE, 1 << 20);
            // Writes, since pages that are in swap can go without another write to it. Each waits for memory before it gives up.
            let mut refused = 0;
            for page in 0..scene.pages() {
                refused += usize::from(!scene.write_or_no_memory(page));
                if refused == 3 {
                    break;
                }
            }
            assert!(refused > 0, "all could be swapped");
            limit(libc::RLIMIT_FSIZE, libc::RLIM_INFINITY);
            scene
        },
    },
    Row {
        name: "rlimit-fsize-written",
        does: "the same with private memory, all of it written again",
        kinds: &[Kind::Copy, Kind::Anon],
        verdict: Verdict::Dies(libc::SIGBUS),
        then: "SIGBUS when nothing more can be swapped, no SIGXFSZ",
        play: |kind| {
            let mut scene = Scene::new(kind);
            limit(libc::RLIMIT_FSIZE, 0);
            (0..scene.pages()).for_each(|page| scene.write(page));
            scene
        },
    },
];

/// The type of a limit's name, which is signed with musl.
#[cfg(target_env = "musl")]
type Resource = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Resource = libc::__rlimit_resource_t;

fn limit(what: Resource, bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: sets a limit of this process.
    unsafe {
        let mut now = limit;
        libc::getrlimit(what, &mut now);
        let limit = libc::rlimit {
            rlim_cur: bytes.min(now.rlim_max),
            rlim_max: now.rlim_max,
        };
        answer(libc::setrlimit(what, &limit)).expect("a limit");
    }
}
