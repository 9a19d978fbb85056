//! Maps that write to their file over the engine: what is left of it when the process ends, and when the file takes nothing.

mod child;
mod write_scene;

use child::{command, scenario};
use std::fs::File;
use std::time::Duration;
use write_scene::{PAGE, Scratch, engine, write};

/// What an end of the process that lets us run anything leaves behind is in the file.
#[test]
fn a_process_that_ends_by_itself_loses_nothing() {
    const TEST: &str = "a_process_that_ends_by_itself_loses_nothing";
    if let Some(scenario) = scenario() {
        let (how, path) = scenario.split_once(' ').unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        let engine = engine(16 << 20);
        let mut map = write(&engine, &file);
        map[3 * PAGE] = 77;
        match how {
            "leak" => core::mem::forget((map, engine)),
            "exit" => {
                core::mem::forget((map, engine));
                std::process::exit(0)
            }
            "flushed" => {
                map.flush().unwrap();
                // SAFETY: ends the process.
                unsafe { libc::raise(libc::SIGKILL) };
            }
            _ => {}
        }
        return;
    }
    for how in ["return", "leak", "exit", "flushed"] {
        let scratch = Scratch::new(how, 64 * PAGE);
        let mut command = command(TEST, &format!("{how} {}", scratch.0.display()));
        command.output().unwrap();
        assert_eq!(scratch.content()[3 * PAGE], 77, "{how}");
    }
}

/// Killed at any moment, what a flush had covered is in the file, no page is older than the flush says, and none newer than
/// what was stored.
#[test]
fn what_a_flush_covered_survives_a_kill() {
    const TEST: &str = "what_a_flush_covered_survives_a_kill";
    const PAGES: usize = 2048;
    if let Some(path) = scenario() {
        use std::io::Write;
        let file = File::options().read(true).write(true).open(path).unwrap();
        // Less than the file: pages are evicted, too.
        let engine = engine(9 << 20);
        let mut map = write(&engine, &file);
        let mut out = std::io::stdout();
        for round in 1..u64::MAX {
            for page in 0..PAGES {
                // Scattered.
                let at = page * 1_031 % PAGES * PAGE;
                map[at..at + 8].copy_from_slice(&round.to_le_bytes());
                map[at + PAGE - 8..at + PAGE].copy_from_slice(&round.to_le_bytes());
            }
            map.flush().unwrap();
            writeln!(out, "flushed {round}").unwrap();
            out.flush().unwrap();
        }
    }
    let kills: u64 = std::env::var("SOFTFAULT_KILLS").map_or(6, |kills| kills.parse().unwrap());
    let scratch = Scratch::new("killed", PAGES * PAGE);
    for kill in 0..kills {
        std::fs::write(&scratch.0, vec![0; PAGES * PAGE]).unwrap();
        let mut command = command(TEST, scratch.0.to_str().unwrap());
        command.stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = child.stdout.take().unwrap();
        std::thread::sleep(Duration::from_millis(20 + kill * 7919 % 400));
        child.kill().unwrap();
        child.wait().unwrap();
        let said = std::io::read_to_string(output).unwrap();
        // The first comes behind what the harness says.
        let flushed = said
            .rsplit("flushed ")
            .next()
            .and_then(|last| last.trim().parse().ok());
        let flushed: u64 = flushed.unwrap_or(0);
        let content = scratch.content();
        assert_eq!(content.len(), PAGES * PAGE);
        for (page, bytes) in content.chunks_exact(PAGE).enumerate() {
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            let (first, last) = (word(0), word(PAGE - 8));
            let round = flushed..=flushed + 1;
            assert!(round.contains(&first), "page {page}: {first} of {flushed}");
            // Between its two stores it may have been written back.
            assert!(
                first == last || first == last + 1,
                "page {page}: {first}, {last}"
            );
        }
    }
}

/// Writes beyond RLIMIT_FSIZE are refused: reported once, and nothing is lost.
#[test]
fn what_cannot_be_written_is_told_once_and_stays() {
    const TEST: &str = "what_cannot_be_written_is_told_once_and_stays";
    let Some(path) = scenario() else {
        let scratch = Scratch::new("refused", 64 * PAGE);
        child::succeeds(TEST, scratch.0.to_str().unwrap());
        let content = scratch.content();
        assert!((0..64).all(|page| content[page * PAGE] == 200 + page as u8 % 50));
        return;
    };
    let limit = |bytes: u64| {
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    };
    let file = File::options().read(true).write(true).open(path).unwrap();
    let engine = engine(16 << 20);
    let mut map = write(&engine, &file);
    let other = write(&engine, &file);
    (0..64).for_each(|page| map[page * PAGE] = 200 + page as u8 % 50);
    limit(32 * PAGE as u64);
    let error = map.flush().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG), "{error}");
    assert_eq!(map.dirty_bytes(), 32 * PAGE as u64);
    assert!(engine.stats().write_errors > 0);
    // Each handle is told.
    let error = other.flush().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    limit(libc::RLIM_INFINITY);
    // Of the failure of the other's flush.
    assert!(map.flush().is_err());
    map.flush().unwrap();
    assert_eq!(map.dirty_bytes(), 0);
}
