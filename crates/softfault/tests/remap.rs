//! Maps that become longer and shorter, in memory and in swap.

mod files;
mod twin;

use files::made_file;
use softfault::{Engine, MIN_MEMORY, RemapOptions, Swap};
use softfault_oracle::Random;
use std::io::ErrorKind;
use twin::write_both;
use twin::{AnyEngine, MIB, PAGE, Side, engines, kernel_anon, kernel_copy, may_move, same};

fn play(engine: &AnyEngine, mut ours: Box<dyn Side>, mut kernel: Box<dyn Side>, most: usize) {
    let mut drawn = Random::new(most as u64);
    for round in 0..40 {
        write_both(&mut *ours, &mut *kernel, &mut drawn, 300);
        let len = match round % 4 {
            0 => ours.len() + drawn.below(2 * PAGE),
            1 => drawn.below(most),
            2 => ours.len() - drawn.below(ours.len().clamp(1, 3 * PAGE)),
            _ => (ours.len() + drawn.below(MIN_MEMORY)).min(most),
        };
        let len = len.clamp(1, most);
        let read_only = round % 5 == 0;
        if read_only {
            ours.make_read_only();
            kernel.make_read_only();
        }
        assert!(ours.remap(len, may_move()), "{len}");
        assert!(kernel.remap(len, may_move()), "{len}");
        if read_only {
            same(&*ours, &*kernel);
            ours.make_mut();
            kernel.make_mut();
        }
        if round % 3 == 0 {
            same(&*ours, &*kernel);
        }
    }
    same(&*ours, &*kernel);
    assert!(engine.stats().swap.unwrap().pages_out > 0);
}

#[test]
fn bytes_are_as_with_the_kernel() {
    let bytes = 3 * MIN_MEMORY;
    let file = made_file("remapped", bytes);
    for engine in engines() {
        let before = engine.stats().resident_bytes;
        play(&engine, engine.map_anon(10_000), kernel_anon(10_000), bytes);
        let (mut ours, mut kernel) = (engine.map_copy(&file), kernel_copy(&file));
        for map in [&mut ours, &mut kernel] {
            assert!(map.remap(50_000, RemapOptions::new()));
        }
        play(&engine, ours, kernel, bytes);
        engine.check_empty(before);
    }
}

#[test]
fn it_grows_page_by_page_to_more_than_memory() {
    for engine in engines() {
        let before = engine.stats().resident_bytes;
        let mut map = engine.map_anon(PAGE);
        let pages = 2 * MIN_MEMORY / PAGE;
        for page in 1..=pages {
            map.write((page - 1) * PAGE, &page.to_le_bytes());
            assert!(map.remap((page + 1) * PAGE, may_move()));
        }
        for page in 1..=pages {
            let mut number = [0; 8];
            map.read((page - 1) * PAGE, &mut number);
            assert_eq!(number, page.to_le_bytes());
        }
        drop(map);
        engine.check_empty(before);
    }
}

#[test]
fn without_leave_to_move_it_stays_where_it_is() {
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(64 << 20);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(MIN_MEMORY)
        .swap(swap);
    let engine = engine.build().unwrap();
    let mut map = engine.map_anon(MIB).unwrap();
    map.fill(5);
    let start = map.as_ptr();
    // SAFETY: nobody has a reference to its bytes.
    unsafe {
        let refused = map.remap(2 * MIB, RemapOptions::new()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
        assert_eq!((map.as_ptr(), map.len()), (start, MIB));
        map.remap(MIB / 2, RemapOptions::new()).unwrap();
        assert_eq!(map.resident_bytes(), MIB / 2);
        // A range that was cut off is zeros when it comes back.
        map.remap(MIB, RemapOptions::new()).unwrap();
        assert_eq!(map.as_ptr(), start);
        assert!(map[..MIB / 2].iter().all(|&byte| byte == 5));
        assert!(map[MIB / 2..].iter().all(|&byte| byte == 0));
        map.remap(3 * MIB, may_move()).unwrap();
        assert_ne!(map.as_ptr(), start);
        assert!(map[..MIB / 2].iter().all(|&byte| byte == 5));
        assert!(map[MIB / 2..].iter().all(|&byte| byte == 0));
        let too_large = map.remap(usize::MAX, may_move()).unwrap_err();
        assert_eq!(too_large.kind(), ErrorKind::InvalidData);
        assert_eq!(map.len(), 3 * MIB);
    }
    // Of nothing.
    let mut map = engine.map_anon(0).unwrap();
    // SAFETY: as above.
    unsafe { map.remap(PAGE, may_move()) }.unwrap();
    map.fill(1);
    // SAFETY: as above.
    unsafe { map.remap(0, may_move()) }.unwrap();
    assert!(map.is_empty());
}

#[test]
fn locked_pages_stay_locked() {
    for engine in engines() {
        let before = engine.stats().resident_bytes;
        let mut map = engine.map_anon(100 * PAGE);
        map.write(0, &vec![7; 100 * PAGE]);
        assert!(map.lock(true));
        for pages in [150, 40, 600, 80, 200] {
            assert!(map.remap(pages * PAGE, may_move()));
            let mut other = engine.map_anon(2 * MIN_MEMORY);
            other.write(0, &vec![1; 2 * MIN_MEMORY]);
            let faults = engine.stats().faults;
            let mut bytes = vec![0; map.len().min(100 * PAGE)];
            map.read(0, &mut bytes);
            map.write(0, &bytes);
            assert!(bytes[..40 * PAGE].iter().all(|&byte| byte == 7));
            if pages < 500 {
                assert_eq!(engine.stats().faults, faults, "{pages} pages");
            }
        }
        assert!(map.lock(false));
        drop(map);
        engine.check_empty(before);
    }
}

#[test]
fn forks_have_the_map_where_it_was() {
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(64 << 20);
    let engine = Engine::builder()
        .allow_kernel_maps(false)
        .memory(4 * MIN_MEMORY)
        .swap(swap);
    let engine = engine.build_soft().unwrap();
    let mut map = engine.map_anon(MIB).unwrap();
    let mut forks = Vec::new();
    for round in 1..6_u8 {
        map.write_at(&vec![round; map.len()], 0).unwrap();
        forks.push((engine.fork().unwrap(), map.len(), round));
        map.remap(map.len() / 2 * 3, may_move()).unwrap();
        // Another map may come to where it was.
        let other = engine.map_anon(MIB).unwrap();
        other.write_at(&[0xEE; MIB], 0).unwrap();
        forks.push((engine.fork().unwrap(), map.len(), 0));
        drop(other);
    }
    for (fork, len, round) in &forks {
        let mut bytes = vec![0; len + 100];
        let count = fork.read_at(&map, &mut bytes, 0).unwrap();
        assert_eq!(count, *len);
        if *round > 0 {
            assert!(bytes[..count].iter().all(|byte| byte == round), "{round}");
        }
    }
}

#[test]
fn a_shared_file_grows_up_to_its_end() {
    let engine = files::engine(MIN_MEMORY);
    let file = made_file("shared", MIB);
    let options = softfault::MmapOptions::new().offset(5000).len(1000).clone();
    // SAFETY: nobody writes to the file.
    let mut map = unsafe { options.map_in(&engine, &file) }.unwrap();
    map.lock().unwrap();
    // SAFETY: nobody has a reference to its bytes.
    unsafe {
        map.remap(MIB - 5000, RemapOptions::new()).unwrap();
        assert_eq!(map.residency(..).unwrap().mapped, 255);
        let past = map.remap(MIB - 4999, may_move()).unwrap_err();
        assert_eq!(past.kind(), ErrorKind::InvalidData);
        assert!((0..map.len()).all(|at| map[at] == files::byte_at(5000 + at)));
        map.remap(10, RemapOptions::new()).unwrap();
    }
    assert_eq!(map.len(), 10);
}
