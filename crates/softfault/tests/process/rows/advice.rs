//! madvise(2), past softfault.

use super::mapping::{check_rest_but, peek, replaced};
use crate::call::{errno, madvise, part};
use crate::row::{Row, Verdict};
use crate::scene::{Kind, PAGE, Scene};

/// Linux 6.1; libc has it for glibc only.
pub const MADV_COLLAPSE: i32 = 25;
/// Guard pages (Linux 6.13).
const MADV_GUARD_INSTALL: i32 = 102;
const MADV_GUARD_REMOVE: i32 = 103;

/// Advice that changes how memory is served, and not its bytes.
const HARMLESS: [i32; 10] = [
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
    libc::MADV_SEQUENTIAL,
    libc::MADV_WILLNEED,
    libc::MADV_COLD,
    libc::MADV_PAGEOUT,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_DONTDUMP,
    libc::MADV_DODUMP,
];

pub const ROWS: &[Row] = &[
    Row {
        name: "madvise-harmless",
        does: "`madvise` NORMAL, RANDOM, SEQUENTIAL, WILLNEED, COLD, PAGEOUT, (NO)HUGEPAGE, DONTDUMP, DODUMP",
        kinds: &[Kind::File, Kind::Copy, Kind::Anon, Kind::Huge],
        verdict: Verdict::Right,
        then: "softfault does not see the call: use its own `advise`",
        play: |kind| {
            let mut scene = Scene::new(kind);
            for advice in HARMLESS {
                let _ = madvise(&scene.addresses(), advice);
                let _ = madvise(&part(&scene, 40..90), advice);
                (0..200).for_each(|page| scene.check(page));
                if scene.is_writable() {
                    (0..200).step_by(3).for_each(|page| scene.write(page));
                }
            }
            scene
        },
    },
    Row {
        name: "madvise-populate",
        does: "`madvise` POPULATE_READ, POPULATE_WRITE, COLLAPSE",
        kinds: &[Kind::File, Kind::Copy, Kind::Anon, Kind::Huge],
        verdict: Verdict::Refused,
        then: "EFAULT or EINVAL where pages are missing",
        play: |kind| {
            let scene = Scene::new(kind);
            for advice in [
                libc::MADV_POPULATE_READ,
                libc::MADV_POPULATE_WRITE,
                MADV_COLLAPSE,
            ] {
                let answer = errno(madvise(&scene.addresses(), advice));
                if kind != Kind::Huge {
                    assert_ne!(answer, 0, "advice {advice}");
                }
                scene.check_all();
            }
            scene
        },
    },
    Row {
        name: "madvise-dontneed",
        does: "`madvise` DONTNEED, DONTNEED_LOCKED, FREE, REMOVE of a map of a file",
        kinds: &[Kind::File],
        verdict: Verdict::Right,
        then: "the pages are read again",
        play: |kind| {
            let scene = Scene::new(kind);
            for advice in [
                libc::MADV_DONTNEED,
                libc::MADV_DONTNEED_LOCKED,
                libc::MADV_FREE,
                libc::MADV_REMOVE,
            ] {
                (0..300).for_each(|page| scene.check(page));
                let _ = madvise(&part(&scene, 7..200), advice);
                (0..300).for_each(|page| scene.check(page));
                let _ = madvise(&scene.addresses(), advice);
                scene.check_all();
            }
            scene
        },
    },
    Row {
        name: "madvise-dontneed-private",
        does: "`madvise` DONTNEED, FREE of private memory",
        kinds: &[Kind::Copy, Kind::Anon],
        verdict: Verdict::Error,
        then: "the old bytes, zeros as from the kernel, or SIGBUS; later writes stay (`unchecked_advise` tells softfault)",
        play: |kind| {
            let mut scene = Scene::new(kind);
            for advice in [libc::MADV_DONTNEED, libc::MADV_FREE] {
                (0..300).for_each(|page| scene.check(page));
                let _ = madvise(&part(&scene, 7..200), advice);
                let start = scene.addresses().start;
                let mut kept = 0;
                for page in 7..200 {
                    let Some(words) = peek(start + page * PAGE) else {
                        continue;
                    };
                    let right = scene.is_right(page, &words);
                    kept += usize::from(right);
                    let of_file = scene.is_of_file(page, &words);
                    let zeros = words.iter().all(|&word| word == 0);
                    assert!(right || of_file || zeros, "page {page}: {:x?}", &words[..2]);
                }
                println!("{kept} pages kept");
                check_rest_but(&scene, 7..200);
                if kept == 193 {
                    continue;
                }
                return replaced(scene);
            }
            (7..200).for_each(|page| scene.write(page));
            scene
        },
    },
    Row {
        name: "madvise-guard",
        does: "`madvise` GUARD_INSTALL and GUARD_REMOVE on a map of a file",
        kinds: &[Kind::File],
        verdict: Verdict::Right,
        then: "after GUARD_REMOVE the pages are read again",
        play: |kind| {
            let scene = Scene::new(kind);
            (0..300).for_each(|page| scene.check(page));
            if madvise(&part(&scene, 7..200), MADV_GUARD_INSTALL).is_err() {
                crate::row::skip("kernel", "no guard pages before Linux 6.13");
            }
            (200..scene.pages()).for_each(|page| scene.check(page));
            madvise(&part(&scene, 7..200), MADV_GUARD_REMOVE).expect("guards removed");
            scene
        },
    },
];
