//! Maps that write to their file over the engine, in a process that is killed at drawn moments: the bytes in the file then.
//!
//! ```text
//!   SOFTFAULT_KILLS=1_000   so many kills of each kind, and a fiftieth of them, four at least, after seconds
//! ```

mod child;
mod write_scene;

use child::{command, scenario};
use softfault::{Advice, MmapMut};
use softfault_oracle::Random;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use write_scene::{PAGE, Scratch, engine, write};

fn kills() -> u64 {
    let text = std::env::var("SOFTFAULT_KILLS").unwrap_or("4".into());
    text.replace('_', "").parse().unwrap()
}

fn open(path: &str) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// Runs `test` again for the file, and kills it a `pause` after it has said a number. Answers the last one that it said.
fn kill(test: &str, scratch: &Scratch, pause: Duration) -> u64 {
    let mut command = command(test, scratch.0.to_str().unwrap());
    command.stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("done ") {
        let read = output.read_line(&mut said).unwrap();
        assert_ne!(read, 0, "it ended by itself: {said}");
    }
    std::thread::sleep(pause);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}: {said}");
    output.read_to_string(&mut said).unwrap();
    // The first comes behind the harness's own line; of the last a part may be missing.
    let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let last = whole.rsplit("done ").next().unwrap_or("");
    last.trim().parse().expect("a number")
}

fn say(number: u64) {
    let mut out = std::io::stdout();
    writeln!(out, "done {number}").unwrap();
    out.flush().unwrap();
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Of a page, words that are stored one after the other.
const WORDS: usize = 8;

fn store(map: &mut MmapMut, page: usize, number: u64) {
    for part in 0..WORDS {
        let at = page * PAGE + part * (PAGE / WORDS);
        map[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
}

/// The number that a page has. It is the page as it was at one moment: from some word on it may have the number before.
fn stored(page: &[u8], number: usize, before: impl Fn(u64, u64) -> bool) -> u64 {
    let words: Vec<u64> = (0..WORDS)
        .map(|part| word(page, part * (PAGE / WORDS)))
        .collect();
    let (first, last) = (words[0], words[WORDS - 1]);
    let split = words.partition_point(|&word| word == first);
    let is_whole = words[split..].iter().all(|&word| word == last);
    let is_so = is_whole && (first == last || before(last, first));
    assert!(is_so, "page {number}: {words:?}");
    first
}

/// Pages that a flush had covered are in the file, nothing is older than the flush says, and nothing newer than the last store.
#[test]
fn flushed_stores_survive_a_kill() {
    const TEST: &str = "flushed_stores_survive_a_kill";
    const PAGES: usize = 2048;
    if let Some(path) = scenario() {
        // Less than the file: pages are evicted, too.
        let engine = engine(9 << 20);
        let mut map = write(&engine, &open(&path));
        say(0);
        for round in 1..u64::MAX {
            // Scattered.
            (0..PAGES).for_each(|page| store(&mut map, page * 1_031 % PAGES, round));
            map.flush().unwrap();
            say(round);
        }
    }
    let scratch = Scratch::new("killed", PAGES * PAGE);
    let mut random = Random::new(1);
    for _ in 0..kills() {
        std::fs::write(&scratch.0, vec![0; PAGES * PAGE]).unwrap();
        let pause = Duration::from_millis(20 + random.below(400) as u64);
        let flushed = kill(TEST, &scratch, pause);
        let content = scratch.content();
        assert_eq!(content.len(), PAGES * PAGE);
        for (number, page) in content.chunks_exact(PAGE).enumerate() {
            let round = stored(page, number, |before, now| before + 1 == now);
            let rounds = flushed..=flushed + 1;
            assert!(
                rounds.contains(&round),
                "page {number}: {round} of {flushed}"
            );
        }
    }
}

/// A record is flushed before the word that says that it is there is stored, and that word never: where the word is in the
/// file, the record is, however the pages went there.
#[test]
fn stores_after_a_flush_need_another_one() {
    const TEST: &str = "stores_after_a_flush_need_another_one";
    /// The word's page, the records, and pages that are only there to have others evicted.
    const RECORDS: usize = 64;
    const REST: usize = 3000;
    const PAGES: usize = 1 + RECORDS + REST;
    if let Some(path) = scenario() {
        let engine = engine(9 << 20);
        let mut map = write(&engine, &open(&path));
        let mut random = Random::new(std::process::id().into());
        say(0);
        for number in 1..u64::MAX {
            let record = 1 + number as usize % RECORDS;
            store(&mut map, record, number);
            map.flush_range(record * PAGE, PAGE).unwrap();
            map[..8].copy_from_slice(&number.to_le_bytes());
            for _ in 0..random.below(200) {
                map[(1 + RECORDS + random.below(REST)) * PAGE] = number as u8;
            }
            match random.below(4) {
                0 => map.advise_range(Advice::PageOut, 0, PAGE).unwrap(),
                1 => map.flush_async().unwrap(),
                _ => {}
            }
            say(number);
        }
    }
    let scratch = Scratch::new("ordered", PAGES * PAGE);
    let mut random = Random::new(2);
    /// A kill that finds no word in the file has checked nothing.
    const VAIN: u64 = 100;
    let (mut made, mut seen) = (0, 0);
    while made < kills() || (seen == 0 && made < VAIN) {
        made += 1;
        std::fs::write(&scratch.0, vec![0; PAGES * PAGE]).unwrap();
        let pause = Duration::from_millis(20 + random.below(400) as u64);
        let said = kill(TEST, &scratch, pause);
        let content = scratch.content();
        let number = word(&content, 0);
        seen += u64::from(number > 0);
        assert!(number <= said + 1, "{number} of {said}");
        for number in number.saturating_sub(RECORDS as u64 - 1).max(1)..=number {
            let record = 1 + number as usize % RECORDS;
            let page = &content[record * PAGE..][..PAGE];
            let before = |before, now| before + RECORDS as u64 == now || before == 0;
            let found = stored(page, record, before);
            assert!(found >= number, "record {number} is {found}");
        }
    }
    println!("the word was in the file after {seen} of {made} kills");
    assert!(seen > 0);
}

/// A store that was made, in a log that the kernel maps: it outlives the process.
#[derive(Clone, Copy)]
struct Made {
    page: usize,
    at_ns: u64,
}

fn now_ns() -> u64 {
    // SAFETY: numbers, of which zeros are valid ones; the call fills them.
    let time = unsafe {
        let mut time: libc::timespec = core::mem::zeroed();
        assert_eq!(libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time), 0);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Pages that nobody flushes are written back by age: 5 seconds, and the time of writing, for which there are ten more here. It takes
/// seconds a kill, so few of many are of this kind, ten at once.
#[test]
fn nothing_is_lost_that_is_old() {
    const TEST: &str = "nothing_is_lost_that_is_old";
    const PAGES: usize = 1024;
    const MOST_NS: u64 = 15_000_000_000;
    const LOG: usize = 1 << 20;
    if let Some(path) = scenario() {
        let engine = engine(9 << 20);
        let mut map = write(&engine, &open(&path));
        let log = softfault::Engine::builder()
            .memory(9 << 20)
            .build()
            .unwrap();
        // SAFETY: nobody else writes to it.
        let mut log = unsafe { log.map_mut(&open(&format!("{path}.log"))) }.unwrap();
        assert!(!log.is_managed());
        let mut random = Random::new(std::process::id().into());
        say(0);
        for number in 1..LOG / 16 {
            let page = random.below(PAGES);
            store(&mut map, page, number as u64);
            let at = number * 16;
            log[at..at + 8].copy_from_slice(&(page as u64).to_le_bytes());
            log[at + 8..at + 16].copy_from_slice(&now_ns().to_le_bytes());
            // SAFETY: the first word of the log, aligned; nobody else has it.
            unsafe { &*log.as_mut_ptr().cast::<AtomicU64>() }.store(number as u64, Relaxed);
            std::thread::sleep(Duration::from_micros(500));
        }
        loop {
            std::thread::park();
        }
    }
    let kills = (kills() / 50).max(4);
    let mut random = Random::new(3);
    // By then there are stores that are too old to be lost.
    let pauses: Vec<u64> = (0..kills)
        .map(|_| 16_000 + random.below(4_000) as u64)
        .collect();
    let oldest = AtomicU64::new(0);
    for (batch, pauses) in pauses.chunks(10).enumerate() {
        std::thread::scope(|scope| {
            for (number, &pause) in pauses.iter().enumerate() {
                let oldest = &oldest;
                scope.spawn(move || {
                    let scratch = Scratch::new(&format!("aged-{batch}-{number}"), 0);
                    let path = PathBuf::from(format!("{}.log", scratch.0.display()));
                    let log = Scratch(path);
                    std::fs::write(&scratch.0, vec![0; PAGES * PAGE]).unwrap();
                    std::fs::write(&log.0, vec![0; LOG]).unwrap();
                    let killed_ns = {
                        kill(TEST, &scratch, Duration::from_millis(pause));
                        now_ns()
                    };
                    let (content, log) = (scratch.content(), log.content());
                    let made = (1..=word(&log, 0) as usize).map(|number| Made {
                        page: word(&log, number * 16) as usize,
                        at_ns: word(&log, number * 16 + 8),
                    });
                    let pages: Vec<u64> = (content.chunks_exact(PAGE).enumerate())
                        .map(|(number, page)| stored(page, number, |before, now| before < now))
                        .collect();
                    let lost = (1..)
                        .zip(made)
                        .filter(|(number, made)| pages[made.page] < *number);
                    let age = lost
                        .map(|(_, made)| killed_ns - made.at_ns)
                        .max()
                        .unwrap_or(0);
                    oldest.fetch_max(age, Relaxed);
                });
            }
        });
    }
    let oldest = oldest.into_inner();
    println!(
        "{kills} kills: the oldest that was lost was {} ms old",
        oldest / 1_000_000
    );
    assert!(oldest > 0, "something is always lost");
    assert!(oldest < MOST_NS, "{oldest} ns");
}
