//! Reads a file through a map that has a fixed budget, and prints the time and memory.
//!
//! `cargo run --release --example read_file -- FILE`

use softfault::{Advice, Engine};
use std::fs::File;

fn main() -> std::io::Result<()> {
    let path = std::env::args_os().nth(1).expect("the path of a file");
    let file = File::open(path)?;
    // Without `allow_kernel_maps(false)` the kernel maps a file that the page cache has, outside of the budget.
    let engine = Engine::builder()
        .memory(64 << 20)
        .allow_kernel_maps(false)
        .build()?;
    // SAFETY: nobody writes to the file meanwhile.
    let map = unsafe { engine.map(&file) }?;
    map.advise(Advice::Sequential)?;
    let lines = map.iter().filter(|&&byte| byte == b'\n').count();
    let stats = engine.stats();
    println!(
        "{lines} lines in {} bytes; {} bytes were read, {} were resident at most",
        map.len(),
        stats.bytes_read,
        stats.peak_bytes
    );
    Ok(())
}
