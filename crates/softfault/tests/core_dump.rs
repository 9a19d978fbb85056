//! Memory that a core dump leaves out: address space that is only reserved, the pool of frames, and windows of files
//! that are only read. It has the program's writes.

mod child;
mod files;
mod proc;

use files::{check, made_file};
use proc::{Mapping, mapping, mappings};
use softfault::{Coherence, Engine};

const MIB: usize = 1 << 20;

/// True if a core dump leaves it out (MADV_DONTDUMP).
fn is_left_out(mapping: &Mapping) -> bool {
    mapping.has_flag("dd")
}

fn is_left_out_at(addr: *const u8) -> bool {
    is_left_out(&mapping(addr as usize).expect("it is mapped"))
}

/// True if nobody may touch it.
fn is_reserved(mapping: &Mapping) -> bool {
    mapping.permissions.starts_with("---")
}

/// Bytes of inaccessible mappings: those that are left out, and those that are not.
fn reserved() -> (usize, usize) {
    mappings()
        .into_iter()
        .filter(is_reserved)
        .fold((0, 0), |(out, dumped), mapping| {
            match is_left_out(&mapping) {
                true => (out + mapping.range.len(), dumped),
                false => (out, dumped + mapping.range.len()),
            }
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
        .filter(|mapping| !is_reserved(mapping) && is_left_out(mapping));
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
        let chunks = all.filter(|mapping| !is_reserved(mapping) && is_left_out(mapping));
        chunks.map(|mapping| mapping.range.len()).sum::<usize>()
    };
    // SAFETY: nobody writes to the file.
    let read = unsafe { engine.map(&file) }.unwrap();
    for offset in (0..read.len()).step_by(MIB / 2) {
        check(&read, offset);
    }
    assert!(is_left_out_at(read.as_ptr()));
    // The window, and a chunk of frames at least.
    assert!(frames() >= 8 * MIB + 2 * MIB, "{}", frames());
    let mut anonymous = engine.map_anon(8 * MIB).unwrap();
    anonymous[5 * MIB] = 1;
    assert!(!is_left_out_at(&anonymous[5 * MIB]));
    // SAFETY: nobody writes to the file.
    let mut copy = unsafe { engine.map_copy(&file) }.unwrap();
    copy[3 * MIB] = 1;
    assert!(!is_left_out_at(&copy[3 * MIB]));
}
