//! Memory that a core dump leaves out: address space that is only reserved, the pool of frames, and windows of files
//! that are only read. It has the program's writes.

mod child;
mod files;

use files::{check, made_file};
use softfault::{Coherence, Engine};

const MIB: usize = 1 << 20;

/// A mapping of this process.
struct Mapping {
    start: usize,
    end: usize,
    accessible: bool,
    /// MADV_DONTDUMP.
    left_out: bool,
}

fn mappings() -> Vec<Mapping> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let left_out = flags.split_ascii_whitespace().any(|flag| flag == "dd");
            mappings.last_mut().unwrap().left_out = left_out;
            continue;
        }
        let (first, rest) = line.split_once(' ').unwrap();
        let Some((start, end)) = first.split_once('-') else {
            continue;
        };
        let address = |text| usize::from_str_radix(text, 16).unwrap();
        mappings.push(Mapping {
            start: address(start),
            end: address(end),
            accessible: !rest.starts_with("---"),
            left_out: false,
        });
    }
    mappings
}

fn at(addr: *const u8) -> Mapping {
    let addr = addr as usize;
    let mut of = mappings().into_iter();
    of.find(|mapping| (mapping.start..mapping.end).contains(&addr))
        .unwrap()
}

/// Bytes of inaccessible mappings: those that are left out, and those that are not.
fn reserved() -> (usize, usize) {
    let all = mappings().into_iter().filter(|mapping| !mapping.accessible);
    let bytes = |mapping: &Mapping| mapping.end - mapping.start;
    all.fold((0, 0), |(out, dumped), mapping| match mapping.left_out {
        true => (out + bytes(&mapping), dumped),
        false => (out, dumped + bytes(&mapping)),
    })
}

#[test]
fn reserved_pages_are_left_out() {
    // Alone: engines of other tests would come and go between the two looks.
    if child::scenario().is_none() {
        return child::succeeds("reserved_pages_are_left_out", "alone");
    }
    let before = reserved();
    let engine = Engine::builder().memory(64 * MIB).build_soft().unwrap();
    let after = reserved();
    let reserve = after.0 - before.0;
    assert!(reserve >= 64 * MIB, "{reserve}");
    // Threads of this test may have come by arenas of the C library's heap, 64 MiB each.
    let more = after.1.saturating_sub(before.1);
    assert!(more < reserve / 4, "{more} of {reserve} would be dumped");
    // Its memory, once it is used, too.
    let anonymous = engine.map_anon(MIB).unwrap();
    assert_eq!(anonymous.write_at(&[7; 4096], 0), Ok(4096));
    let opened = mappings()
        .into_iter()
        .filter(|mapping| mapping.accessible && mapping.left_out);
    assert!(opened.count() > 0);
}

#[test]
fn written_pages_are_dumped_and_read_only_files_are_not() {
    let file = made_file("core-dump", 8 * MIB);
    let engine = Engine::builder()
        .memory(32 * MIB)
        .allow_kernel_maps(false)
        .small_maps(0)
        .coherence(Coherence::Engine)
        .build()
        .unwrap();
    let frames = || {
        let all = mappings().into_iter();
        let chunks = all.filter(|mapping| mapping.accessible && mapping.left_out);
        chunks
            .map(|mapping| mapping.end - mapping.start)
            .sum::<usize>()
    };
    // SAFETY: nobody writes to the file.
    let read = unsafe { engine.map(&file) }.unwrap();
    for offset in (0..read.len()).step_by(MIB / 2) {
        check(&read, offset);
    }
    assert!(at(read.as_ptr()).left_out);
    // The window, and a chunk of frames at least.
    assert!(frames() >= 8 * MIB + 2 * MIB, "{}", frames());
    let mut anonymous = engine.map_anon(8 * MIB).unwrap();
    anonymous[5 * MIB] = 1;
    assert!(!at(&anonymous[5 * MIB]).left_out);
    // SAFETY: nobody writes to the file.
    let mut copy = unsafe { engine.map_copy(&file) }.unwrap();
    copy[3 * MIB] = 1;
    assert!(!at(&copy[3 * MIB]).left_out);
}
