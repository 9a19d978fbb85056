//! `unsafe`: where it may be, and that it is accounted for.

use crate::source::{Sources, lines, words};
use crate::{Broken, Rule};

pub const SAYS_WHY: Rule = Rule {
    name: "unsafe-says-why",
    why: "a reader must be able to check each unsafe block on the spot",
    check: says_why,
    bad: &[
        &[("a.rs", "fn f() {\n    unsafe { g() }\n}")],
        &[("a.rs", "unsafe impl Send for A {}")],
        &[("a.rs", "// SAFETY: far away\n\n\n\n\n\n\nunsafe { g() }")],
        &[("a.rs", "let why = \"SAFETY:\";\nunsafe { g() }")],
    ],
    good: &[(
        "a.rs",
        "// SAFETY: sound.\nunsafe impl Send for A {}\n\n\n\n\n\n/// # Safety\n/// Own it.\nunsafe fn f();",
    )],
};

/// How far above its block the line may begin.
const WITHIN: usize = 6;

fn says_why(sources: &Sources) -> Vec<Broken> {
    let mut broken = Vec::new();
    for (path, text) in sources.rust() {
        let raw: Vec<&str> = text.lines().collect();
        for (at, (place, line)) in lines(path, text).iter().enumerate() {
            if !opens_unsafe(line) {
                continue;
            }
            let mut above = raw[at.saturating_sub(WITHIN)..=at].iter();
            if !above.any(|line| line.contains("// SAFETY:")) {
                broken.push(format!("{place} has no SAFETY line"));
            }
        }
    }
    broken
}

fn opens_unsafe(line: &str) -> bool {
    line.match_indices("unsafe").any(|(at, word)| {
        let after = line[at + word.len()..].trim_start();
        after.is_empty() || after.starts_with('{') || after.starts_with("impl")
    })
}

pub const IN_FEW_FILES: Rule = Rule {
    name: "unsafe-in-few-files",
    why: "the engine's unsafe code is a short list that a reviewer can read in one sitting",
    check: in_few_files,
    bad: &[
        &[("crates/engine/src/new.rs", "unsafe { g() }")],
        // Listed, and gone or without unsafe.
        &[("crates/engine/src/lib.rs", "pub mod a;")],
    ],
    good: &[
        ("crates/softfault/src/a.rs", "unsafe { g() }"),
        ("crates/engine/tests/a.rs", "unsafe { g() }"),
    ],
};

/// Files of the engine that may say `unsafe`, and do.
const UNSAFE_FILES: &[&str] = &[
    // The value behind a lock.
    "crates/engine/src/lock/mutex.rs",
    // Words of anonymous pages, in memory from the system.
    "crates/engine/src/anon/pages.rs",
    // Words of swap slots, likewise.
    "crates/engine/src/swap/slots/table.rs",
    // Attributes of a VMA, behind its lock.
    "crates/engine/src/mm/vma.rs",
    "crates/engine/src/mm/vma_lock/mod.rs",
    // A VMA's lock where it is apart: a slot that outlives the VMA.
    "crates/engine/src/mm/vma_lock/baseline.rs",
    // Visible readers: a table that outlives the VMA.
    "crates/engine/src/mm/vma_lock/biased.rs",
    "crates/engine/src/mm/mmap_lock.rs",
    // Frames that a page is read into again.
    "crates/engine/src/fault/file/vanished.rs",
    "crates/engine/src/mm/vma_slabs.rs",
    // Slots that are made once and never go.
    "crates/engine/src/slab.rs",
    // A folio's way to its page cache; a window's sparse table.
    "crates/engine/src/cache/folio.rs",
    "crates/engine/src/cache/window.rs",
    // The memory behind soft page tables, the tables in it, and the cores that may look.
    "crates/engine/src/mmu/soft/frames.rs",
    "crates/engine/src/mmu/soft/tables.rs",
    "crates/engine/src/mmu/soft/tlb.rs",
    "crates/engine/src/mmu/soft/protect.rs",
    // Huge pages in that memory, and the pool that says whose they are.
    "crates/engine/src/mmu/soft/huge.rs",
    "crates/engine/src/huge/pool.rs",
    // Functions that take bare memory, and those that hand frames to them.
    "crates/engine/src/mmu.rs",
    "crates/engine/src/mmu/soft/mod.rs",
    "crates/engine/src/mmu/soft/map.rs",
    "crates/engine/src/store.rs",
    "crates/engine/src/cache/reads/batch.rs",
    "crates/engine/src/fault/file/write.rs",
    "crates/engine/src/fault/file/write_whole.rs",
    "crates/engine/src/fault/file/expect.rs",
    "crates/engine/src/cache/reads/read.rs",
    "crates/engine/src/cache/contents.rs",
    "crates/engine/src/fault/anon/install.rs",
    "crates/engine/src/swap/mod.rs",
    "crates/engine/src/anon/view.rs",
    "crates/engine/src/reclaim/anonymous/write.rs",
    "crates/engine/src/reclaim/copies.rs",
    "crates/engine/src/reclaim/write_back.rs",
    // The private memory that reclaim goes over, which its owners take out first.
    "crates/engine/src/reclaim/windows.rs",
];

fn in_few_files(sources: &Sources) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut seen = Vec::new();
    let mut has_engine = false;
    for (path, text) in sources.rust_below("crates/engine/src/") {
        has_engine = true;
        let mut lines = lines(path, text).into_iter();
        if let Some((place, _)) = lines.find(|(_, line)| words(line).any(|w| w == "unsafe")) {
            seen.push(path);
            if !UNSAFE_FILES.contains(&path) {
                broken.push(format!("{place} is unsafe and its file not on the list"));
            }
        }
    }
    if has_engine {
        let idle = UNSAFE_FILES.iter().filter(|path| !seen.contains(path));
        broken.extend(idle.map(|path| format!("{path} is on the list for nothing")));
    }
    broken
}
