//! The swap file and the disk it is on: a disk that is full, a process that is
//! killed, limits.

mod child;
mod store_scene;
mod swap_scene;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use softfault::{Compression, Swap};
use softfault_engine::store::StoreError;
use store_scene::PAGE;
use swap_scene::{BOTH, Mounted, Pages, discard, disk, swap_file, until};

const MIB: usize = 1 << 20;

/// Fills the file system through a swap file, and goes on.
fn fill_up(mounted: &Mounted, compression: Compression, fallocates: bool) {
    const BATCH: usize = MIB / PAGE;
    let before = mounted.free();
    let slots = 3 * before as usize / PAGE;
    let file = swap_file(&mounted.dir, slots, compression);
    let pages = Pages::new(BATCH);
    let mut batches = 0;
    let full = loop {
        match pages.write(&file, batches * BATCH, &[1; BATCH]) {
            Ok(()) => batches += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, StoreError::Io(libc::ENOSPC));
    // The last one can be written again: its space was taken, though of no more than a part of its cluster, and the disk was
    // full a moment ago. (A packed page is written to another place.)
    if compression == Compression::None {
        pages
            .write(&file, (batches - 1) * BATCH, &[1; BATCH])
            .unwrap();
    }
    assert_eq!(mounted.files(), 0, "it has no name");
    // Nearly all of the disk was used, and all that was written is there.
    assert!(
        batches * MIB > before as usize * 8 / 10,
        "{batches} of {before}"
    );
    let is_there = |batch: usize| pages.check(&file, batch * BATCH, &[1; BATCH]);
    (0..batches).for_each(is_there);
    // A page whose slot has space can be written still.
    let again = pages.write(&file, (batches + 1) * BATCH, &[1; BATCH]);
    assert_eq!(again, Err(StoreError::Io(libc::ENOSPC)));
    discard(&file, batches * BATCH..(batches + 2) * BATCH);
    discard(&file, 0..BATCH);
    // A packed page finds such a place only where space was taken beforehand.
    if compression == Compression::None || fallocates {
        pages.write(&file, 0, &[2; BATCH / 4]).unwrap();
        pages.check(&file, 0, &[2; BATCH / 4]);
    }
    (1..batches).for_each(is_there);
    // Space that is given back can be taken again.
    discard(&file, 0..batches * BATCH);
    // (ext2 keeps some blocks that tell where blocks are.)
    until(|| file.bytes_on_disk() < 1 << 18);
    for batch in 0..batches / 2 {
        pages
            .write(&file, (batches + batch) * BATCH, &[3; BATCH])
            .unwrap();
    }
    pages.check(&file, batches * BATCH, &[3; BATCH]);
    drop(file);
    // The kernel gives blocks back when nobody has the file any more, its own threads included.
    until(|| mounted.free() == before);
}

#[test]
fn a_full_disk_is_an_error_of_the_write_that_wanted_more() {
    let name = "a_full_disk_is_an_error_of_the_write_that_wanted_more";
    let kinds = ["tmpfs", "ext4", "ext2"];
    let Some(scenario) = child::scenario() else {
        kinds.iter().for_each(|kind| child::succeeds(name, kind));
        return;
    };
    let mounted = match scenario.as_str() {
        "tmpfs" => Mounted::tmpfs(48 * MIB),
        // Without extents, so that it takes no space beforehand.
        kind => Mounted::image(kind, 64 << 20),
    };
    let Some(mounted) = mounted else {
        let why = format_args!("{scenario} cannot be made and mounted");
        return softfault_skip::skipped("root", why);
    };
    for compression in BOTH {
        fill_up(&mounted, compression, scenario != "ext2");
    }
}

const DIR: &str = "SOFTFAULT_TEST_SWAP_DIR";

/// A process that has 24 MiB in swap and does nothing more.
fn victim(test: &str, dir: &std::path::Path) -> Child {
    let mut command = child::command(test, "victim");
    let mut victim = command
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let ready = lines
        .map_while(Result::ok)
        .any(|line| line.ends_with("it is there"));
    assert!(ready, "the victim died by itself");
    victim
}

#[test]
fn a_process_that_is_killed_leaves_nothing() {
    let name = "a_process_that_is_killed_leaves_nothing";
    match child::scenario().as_deref() {
        None => return child::succeeds(name, "watch"),
        Some("victim") => {
            let dir = PathBuf::from(std::env::var_os(DIR).unwrap());
            let file = swap_file(&dir, 24 * MIB / PAGE, Compression::None);
            let pages = Pages::new(24 * MIB / PAGE);
            pages.write(&file, 0, &[1; 24 * MIB / PAGE]).unwrap();
            println!("it is there");
            loop {
                std::thread::park();
            }
        }
        Some(_) => {}
    }
    let mounts = || [Mounted::tmpfs(48 * MIB), Mounted::image("ext4", 64 << 20)];
    for mounted in mounts().into_iter().flatten() {
        let before = mounted.free();
        let mut victim = victim(name, &mounted.dir);
        assert!(before - mounted.free() >= 24 * MIB as u64);
        assert_eq!(mounted.files(), 0);
        victim.kill().unwrap();
        victim.wait().unwrap();
        // As above.
        until(|| (mounted.free(), mounted.files()) == (before, 0));
    }
    // Where nothing can be mounted, at least no name is left.
    let dir = disk().join(format!("killed-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let mut victim = victim(name, &dir);
    victim.kill().unwrap();
    victim.wait().unwrap();
    std::fs::remove_dir(&dir).expect("an empty directory");
}

#[test]
fn a_limit_on_files_is_an_error_and_no_signal() {
    let name = "a_limit_on_files_is_an_error_and_no_signal";
    if child::scenario().is_none() {
        return child::succeeds(name, "limited");
    }
    let limit = libc::rlimit {
        rlim_cur: MIB as u64,
        rlim_max: MIB as u64,
    };
    // SAFETY: only reads the limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    for compression in BOTH {
        let swap = Swap::in_dir(disk()).compression(compression);
        let error = swap
            .clone()
            .bytes(2 << 20)
            .open(0, None)
            .err()
            .expect("too large");
        assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
        let wanted =
            "the size is above the limit for a file: raise it with `ulimit -f`, or ask for less";
        assert!(error.to_string().ends_with(wanted), "{error}");
        // Without a size it is as large as it may be.
        let file = swap.open(64 << 20, None).unwrap();
        let pages = Pages::new(128);
        pages.write(&file, 0, &[1; 128]).unwrap();
        pages.check(&file, 0, &[1; 128]);
    }
}
