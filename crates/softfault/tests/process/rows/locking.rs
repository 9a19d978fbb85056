//! mlock(2) and its family.

use crate::call::{mlock, mlock_on_fault, mlockall, munlock, part};
use crate::row::{Row, Verdict};
use crate::scene::{Kind, Scene};
use libc::{MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT};

const EVICTED: &str = "a locked page stays until the budget needs it";

pub const ROWS: &[Row] = &[
    Row {
        name: "mlock-page",
        does: "`mlock` of pages that are in memory",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: EVICTED,
        play: |kind| {
            let scene = Scene::new(kind);
            (0..16).for_each(|page| scene.check(page));
            let _ = mlock(&part(&scene, 0..16));
            scene
        },
    },
    Row {
        name: "mlock-map",
        does: "`mlock` of a whole map",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: "ENOMEM, since the kernel cannot bring missing pages in; locked pages are evicted when the budget needs it",
        play: |kind| {
            let scene = Scene::new(kind);
            let _ = mlock(&scene.addresses());
            scene
        },
    },
    Row {
        name: "mlock2-onfault",
        does: "`mlock2(MLOCK_ONFAULT)` of a whole map",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: EVICTED,
        play: |kind| {
            let scene = Scene::new(kind);
            let _ = mlock_on_fault(&scene.addresses());
            scene
        },
    },
    Row {
        name: "munlock",
        does: "`munlock`, `munlockall` of maps",
        kinds: Kind::SERVED,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let scene = Scene::new(kind);
            let _ = mlock(&scene.addresses());
            scene.check_all();
            munlock(&scene.addresses()).expect("munlock");
            scene.check_all();
            let _ = mlock_on_fault(&part(&scene, 100..200));
            scene.check_all();
            // SAFETY: unlocks this process's locked memory.
            assert_eq!(unsafe { libc::munlockall() }, 0);
            scene
        },
    },
    Row {
        name: "mlockall-future",
        does: "`mlockall(MCL_FUTURE)` before the engine is built",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            mlockall_or_skip(MCL_FUTURE);
            Scene::new(kind)
        },
    },
    Row {
        name: "mlockall-future-later",
        does: "`mlockall(MCL_FUTURE)` between two maps",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            let before = Scene::new(kind);
            mlockall_or_skip(MCL_FUTURE);
            let after = Scene::new(kind);
            before.check_all();
            after
        },
    },
    Row {
        name: "mlockall-future-onfault",
        does: "`mlockall` with MCL_FUTURE and MCL_ONFAULT before the engine is built",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: "",
        play: |kind| {
            mlockall_or_skip(MCL_FUTURE | MCL_ONFAULT);
            Scene::new(kind)
        },
    },
    Row {
        name: "mlockall-current",
        does: "`mlockall(MCL_CURRENT)`, also with MCL_FUTURE",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: EVICTED,
        play: |kind| {
            let scene = Scene::new(kind);
            mlockall_or_skip(MCL_CURRENT);
            scene.check_all();
            mlockall_or_skip(MCL_CURRENT | MCL_FUTURE);
            scene.check_all();
            Scene::new(kind)
        },
    },
    Row {
        name: "mlockall-current-onfault",
        does: "`mlockall` with MCL_CURRENT and MCL_ONFAULT",
        kinds: Kind::ALL,
        verdict: Verdict::Right,
        then: EVICTED,
        play: |kind| {
            let scene = Scene::new(kind);
            mlockall_or_skip(MCL_CURRENT | MCL_ONFAULT);
            scene
        },
    },
];

fn mlockall_or_skip(flags: i32) {
    if !may_lock_all() {
        crate::row::skip(
            "mlock",
            "little may be locked: every mapping and thread would be refused",
        );
    }
    if let Err(error) = mlockall(flags) {
        // Pages that are missing cannot be populated; they are locked all the same.
        let raw = error.raw_os_error();
        if raw != Some(libc::ENOMEM) && raw != Some(libc::EAGAIN) {
            crate::row::skip("mlock", &format!("mlockall: {error}"));
        }
    }
}

/// True if the process may lock as much as it likes.
pub fn may_lock_all() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: only asks.
    unsafe {
        libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit);
        libc::geteuid() == 0 || limit.rlim_cur == libc::RLIM_INFINITY
    }
}
