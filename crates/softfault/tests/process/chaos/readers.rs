//! The ways to read a map.

use super::draw::Draw;
use super::world::{Which, World};
use crate::scene::PAGE;

/// Pages that are read at a time, at most.
const MOST: usize = 12;

/// Reads some pages in some way, and checks them; how many.
pub fn read(world: &World, draw: &mut Draw) -> u64 {
    let which = draw.one_of(&[Which::File, Which::File, Which::Copy, Which::Anon]);
    let page = draw.below(world.pages(which) - MOST);
    let pages = 1 + draw.below(MOST);
    let range = page * PAGE..(page + pages) * PAGE;
    let bytes = world.bytes(which);
    match draw.below(6) {
        0 | 1 => world.check(which, page, &bytes[range]),
        2 => {
            let mut buffer = vec![0; range.len()];
            let read = match which {
                Which::File => world.file.read_at(&mut buffer, range.start),
                Which::Copy => world.copy.read_at(&mut buffer, range.start),
                Which::Anon => world.anon.read_at(&mut buffer, range.start),
            };
            assert_eq!(read, Ok(range.len()));
            world.check(which, page, &buffer);
        }
        3 => {
            let mut buffer = Vec::new();
            let written = match which {
                Which::File => world.file.write_to(range.clone(), &mut buffer),
                Which::Copy => world.copy.write_to(range.clone(), &mut buffer),
                Which::Anon => world.anon.write_to(range.clone(), &mut buffer),
            };
            assert_eq!(written.expect("written"), range.len() as u64);
            world.check(which, page, &buffer);
        }
        4 => {
            let range = match which {
                Which::File => range,
                _ => return 0,
            };
            let pinned = world.file.pin(range).expect("pinned");
            world.check(which, page, &pinned);
        }
        _ => {
            // Every page, backwards, a word each.
            for page in (page..page + pages).rev() {
                let at = page * PAGE + draw.below(PAGE / 8) * 8;
                let found = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
                assert_eq!(found, world.word(which, at / 8), "{which:?}, byte {at}");
            }
        }
    }
    pages as u64
}
