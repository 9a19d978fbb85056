//! A program's view of pages that another has cut off: the file as it is, whatever is in memory.

use super::{KEPT, PAGE, PAGES, Scratch, engine, write};
use softfault::{Advice, FaultError, MmapMut};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

const END: usize = KEPT * PAGE;

/// A map of the whole file, which is cut to its first pages; `before` comes before.
fn scene(name: &str, before: impl FnOnce(&mut MmapMut)) -> (Scratch, MmapMut) {
    let scratch = Scratch::new(name, PAGES * PAGE);
    let mut map = write(&engine(16 << 20), &scratch.open());
    before(&mut map);
    cut(&scratch);
    (scratch, map)
}

fn cut(scratch: &Scratch) {
    scratch.open().set_len(END as u64).unwrap();
}

/// Brings all of it in.
fn read_all(map: &MmapMut) {
    let mut bytes = vec![0; PAGES * PAGE];
    assert_eq!(map.read_at(&mut bytes, 0), Ok(bytes.len()));
}

/// The file has not become longer again, and has this byte at the start of the last page.
#[track_caller]
fn ends_as(scratch: &Scratch, byte: u8) {
    let content = scratch.content();
    assert_eq!((content.len(), content[END - PAGE]), (END, byte));
}

/// Of pages that are missing, and of pages that are there; whole ones and parts.
#[test]
fn a_call_that_writes_to_them_is_an_error() {
    let bytes = vec![7; 4 * PAGE];
    let all = |map: &mut MmapMut| read_all(map);
    for (name, before) in [("missing", None), ("there", Some(all))] {
        let (scratch, mut map) = scene(name, |map| before.map_or((), |before| before(map)));
        for (at, len) in [(END, 4 * PAGE), (40 * PAGE, PAGE), (END + 5, 9)] {
            let written = map.write_at(&bytes[..len], at);
            assert_eq!(written, Err(FaultError::BeyondEnd), "{name}: {at}");
            let mut from = &bytes[..len];
            let written = map.write_from(at..at + len, &mut from).unwrap_err();
            assert_eq!(written.kind(), ErrorKind::UnexpectedEof, "{name}: {at}");
            let mut from = &bytes[..len];
            let read = map.read_from(at..at + len, &mut from).unwrap_err();
            assert_eq!(read.kind(), ErrorKind::UnexpectedEof, "{name}: {at}");
        }
        assert_eq!(map.populate(40 * PAGE..), Err(FaultError::BeyondEnd));
        assert!(map.lock().is_err(), "{name}");
        assert_eq!(map.write_at(&bytes[..PAGE], END - PAGE), Ok(PAGE));
        map.flush().unwrap();
        ends_as(&scratch, 7);
        // Bytes that others add are there.
        scratch.open().set_len((PAGES * PAGE) as u64).unwrap();
        map.write_at(&bytes[..PAGE], 40 * PAGE).unwrap();
        map.flush().unwrap();
        assert_eq!(scratch.content()[40 * PAGE], 7);
    }
}

/// Of a page that was in memory a store is no fault.
#[test]
fn a_flush_tells_of_stores_to_them_once() {
    let scratch = Scratch::new("stored", PAGES * PAGE);
    let mut map = write(&engine(16 << 20), &scratch.open());
    let other = write(map.engine(), &scratch.open());
    read_all(&map);
    cut(&scratch);
    map[END - PAGE] = 5;
    map[40 * PAGE] = 5;
    for map in [&map, &other] {
        let told = map.flush().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::UnexpectedEof);
        map.flush().unwrap();
    }
    assert_eq!(map.dirty_bytes(), 0);
    ends_as(&scratch, 5);
    map.advise(Advice::PageOut).unwrap();
    let read = map.read_at(&mut [0], 40 * PAGE);
    assert_eq!(read, Err(FaultError::BeyondEnd));
}

/// The new map finds the file's new end, and forgets what is behind it.
#[test]
fn stores_to_them_are_told_where_the_file_is_mapped_anew() {
    let (scratch, mut map) = scene("anew", |map| read_all(map));
    map[END - PAGE] = 6;
    map[40 * PAGE] = 6;
    let other = write(map.engine(), &scratch.open());
    assert_eq!(other.len(), END);
    let told = map.flush().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::UnexpectedEof);
    other.flush().unwrap();
    ends_as(&scratch, 6);
}

/// The engine makes the file longer again than others have left it: it has holes there, and so has the map.
#[test]
fn bytes_that_others_have_cut_off_do_not_come_back() {
    let (scratch, mut map) = scene("longer", |map| map[40 * PAGE] = 5);
    map.set_len(&scratch.open(), PAGES * PAGE).unwrap();
    assert_eq!(map[40 * PAGE], 0);
    let told = map.flush().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::UnexpectedEof);
    map.flush().unwrap();
    assert_eq!(scratch.content()[40 * PAGE], 0);
}

/// Nor are they forgotten without a word by a call that fails.
#[test]
fn stores_to_them_are_told_where_the_length_cannot_be_changed() {
    let (scratch, map) = scene("cannot", |map| map[40 * PAGE] = 5);
    let only_read = File::open(&scratch.0).unwrap();
    let refused = map.engine().truncate(&only_read, (PAGES * PAGE) as u64);
    refused.unwrap_err();
    let told = map.flush().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::UnexpectedEof);
    map.flush().unwrap();
}

/// They stay in memory, and nobody sees any more whether the program stores to them.
#[test]
fn locked_pages_that_others_have_cut_off_are_told_once() {
    let scratch = Scratch::new("locked", PAGES * PAGE);
    let mut map = write(&engine(16 << 20), &scratch.open());
    let mut other = write(map.engine(), &scratch.open());
    map.lock().unwrap();
    map[40 * PAGE] = 5;
    cut(&scratch);
    for map in [&map, &other] {
        let told = map.flush().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::UnexpectedEof);
        map.flush().unwrap();
    }
    other.set_len(&scratch.open(), PAGES * PAGE).unwrap();
    assert_eq!((map[40 * PAGE], map.flush().is_ok()), (0, true));
    assert_eq!(scratch.content()[40 * PAGE], 0);
}

/// A hole's blocks are asked for at the first store: the file has no such place.
#[test]
fn no_blocks_are_reserved_behind_the_end() {
    let scratch = Scratch::of("hole", &[]);
    let file: File = scratch.open();
    file.set_len((PAGES * PAGE) as u64).unwrap();
    let map = write(&engine(16 << 20), &file);
    read_all(&map);
    cut(&scratch);
    assert_eq!(map.populate(40 * PAGE..), Err(FaultError::BeyondEnd));
    assert_eq!(map.dirty_bytes(), 0);
}

fn blocks(scratch: &Scratch) -> u64 {
    scratch.open().metadata().unwrap().blocks()
}

/// Where others cut the file and make it longer again it has holes, also where its blocks were there when it was opened. A new
/// map finds the cut; from then on a store behind it asks for blocks.
#[test]
fn the_blocks_of_a_hole_that_others_made_are_asked_for() {
    for stored in [false, true] {
        let (scratch, mut map) = scene("holes", |map| {
            if stored {
                map[40 * PAGE] = 6;
            }
        });
        let other = write(map.engine(), &scratch.open());
        assert_eq!(other.len(), END);
        scratch.open().set_len((PAGES * PAGE) as u64).unwrap();
        let before = blocks(&scratch);
        map[40 * PAGE] = 7;
        assert!(blocks(&scratch) > before, "{stored}");
    }
}
