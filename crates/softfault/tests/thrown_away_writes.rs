//! madvise(2) of the program's own on maps that write to their file over the engine, however faults arrive: a page that is thrown away is
//! either written before, or as the file has it again.

mod child;
mod each_way;
mod write_scene;

use each_way::alone;
use softfault::{MIN_MEMORY, MmapMut};
use std::ops::Range;
use write_scene::{PAGE, Scratch, byte, engine, word_of, write};

/// Pages of a folio.
const FOLIO: usize = 16;

/// Gives advice as a program that knows nothing of us.
fn throw_away(map: &MmapMut, pages: Range<usize>) {
    let part = &map[pages.start * PAGE..pages.end * PAGE];
    let start = part.as_ptr().cast_mut().cast();
    // SAFETY: a part of the map, which shows the file's bytes again.
    let done = unsafe { libc::madvise(start, part.len(), libc::MADV_DONTNEED) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Where a page is looked at: not where it is written to.
const LOOK: usize = 8;

/// The file's first byte there.
fn was(page: usize) -> u8 {
    word_of((page * PAGE + LOOK) / 8).to_le_bytes()[0]
}

/// Touches each page, which is as it was but for its first byte: written, or as the file had it.
#[track_caller]
fn check(map: &MmapMut, pages: Range<usize>, written: u8) {
    for page in pages {
        assert_eq!(byte(map, page * PAGE + LOOK), was(page), "page {page}");
        let found = byte(map, page * PAGE);
        let before = word_of(page * PAGE / 8).to_le_bytes()[0];
        assert!(found == written || found == before, "page {page}: {found}");
    }
}

#[test]
fn pages_with_expected_writes_may_be_gone() {
    if !alone("pages_with_expected_writes_may_be_gone") {
        return;
    }
    const PAGES: usize = 64 * FOLIO;
    let scratch = Scratch::new("expected", PAGES * PAGE);
    let engine = engine(2 * MIN_MEMORY);
    let mut map = write(&engine, &scratch.open());
    (0..FOLIO).for_each(|page| map[page * PAGE] = 77);
    for folio in (FOLIO..PAGES).step_by(FOLIO) {
        // Two pages before it are written to: with the first, all of the folio may be, and its frames stay.
        (folio..folio + 4).for_each(|page| map[page * PAGE] = 77);
        // Some pages that were written to, and some that were not.
        throw_away(&map, folio + 2..folio + 9);
        if folio % (3 * FOLIO) == 0 {
            map.flush().unwrap();
        }
        (folio + 12..folio + FOLIO).for_each(|page| map[page * PAGE] = 77);
    }
    check(&map, 0..PAGES, 77);
    (0..PAGES).for_each(|page| map[page * PAGE] = 78);
    map.flush().unwrap();
    let content = scratch.content();
    assert!((0..PAGES).all(|page| content[page * PAGE] == 78));
    assert!((0..PAGES).all(|page| content[page * PAGE + LOOK] == was(page)));
}

#[test]
fn flushed_pages_may_be_gone() {
    if !alone("flushed_pages_may_be_gone") {
        return;
    }
    const PAGES: usize = 20 * FOLIO;
    let scratch = Scratch::new("flushed", PAGES * PAGE);
    let engine = engine(2 * MIN_MEMORY);
    let mut map = write(&engine, &scratch.open());
    // Not in order: nothing is expected.
    let pages = || (0..PAGES).rev().step_by(3);
    for round in 0..3 {
        pages().for_each(|page| map[page * PAGE] = 77);
        throw_away(&map, 5..PAGES - 5);
        if round > 0 {
            check(&map, 0..PAGES, 77);
        }
        map.flush().unwrap();
        assert_eq!(map.dirty_bytes(), 0);
        check(&map, 0..PAGES, 77);
    }
    let content = scratch.content();
    assert!((0..PAGES).all(|page| content[page * PAGE + LOOK] == was(page)));
}

#[test]
fn evicted_pages_may_be_gone() {
    if !alone("evicted_pages_may_be_gone") {
        return;
    }
    const PAGES: usize = 4 * MIN_MEMORY / PAGE;
    let scratch = Scratch::new("evicted", PAGES * PAGE);
    let engine = engine(MIN_MEMORY);
    let mut map = write(&engine, &scratch.open());
    for page in (0..PAGES).rev() {
        map[page * PAGE] = 77;
        if page % 96 == 0 && page + 48 <= PAGES {
            throw_away(&map, page..page + 48);
        }
    }
    assert!(engine.stats().evicted > 0);
    check(&map, 0..PAGES, 77);
    map.flush().unwrap();
    let content = scratch.content();
    assert!((0..PAGES).all(|page| content[page * PAGE + LOOK] == was(page)));
    // Pages that were not thrown away have been written.
    let kept = (0..PAGES).filter(|page| page % 96 >= 48);
    assert!(kept.clone().all(|page| content[page * PAGE] == 77));
}
