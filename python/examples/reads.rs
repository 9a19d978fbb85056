//! The comparison for `bench.py`: the same work by the Rust library, and by threads of pread.
//!
//! `reads sum FILE MEMORY [TIMES]` prints the seconds of each sum over a map; `reads pread FILE THREADS READS` those of so many
//! direct reads of 4 KiB at random.

use softfault::Engine;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

const PAGE: usize = 4096;

/// Memory that direct reads may go to.
#[repr(align(4096))]
struct Page([u8; PAGE]);

fn sum(path: &str, memory: usize, times: usize) -> io::Result<()> {
    let engine = Engine::builder().memory(memory).build()?;
    let file = File::open(path)?;
    // SAFETY: nobody writes to the file meanwhile.
    let map = unsafe { engine.map(&file) }?;
    for _ in 0..times {
        let begun = Instant::now();
        // SAFETY: any bytes are words.
        let (_, words, _) = unsafe { map.align_to::<i64>() };
        let sum = words
            .iter()
            .fold(0_i64, |sum, word| sum.wrapping_add(*word));
        println!("{} {sum}", begun.elapsed().as_secs_f64());
    }
    Ok(())
}

fn pread(path: &str, threads: usize, reads: usize) -> io::Result<()> {
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let pages = file.metadata()?.len() / PAGE as u64;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let mut all = Vec::new();
        for thread in 0..threads {
            let file = &file;
            all.push(scope.spawn(move || {
                let mut page = Box::new(Page([0; PAGE]));
                let mut state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(thread as u64 + 1);
                for _ in 0..reads / threads {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    file.read_exact_at(&mut page.0, state % pages * PAGE as u64)?;
                }
                io::Result::Ok(())
            }));
        }
        let mut done = all
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        done.try_for_each(|done| done)
    })?;
    println!("{}", begun.elapsed().as_secs_f64());
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sum", path, memory] => sum(path, number(memory), 1),
        ["sum", path, memory, times] => sum(path, number(memory), number(times)),
        ["pread", path, threads, reads] => pread(path, number(threads), number(reads)),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "sum FILE MEMORY, or pread FILE THREADS READS",
        )),
    }
}
