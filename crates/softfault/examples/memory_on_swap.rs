//! Private memory that is larger than its budget: pages that do not fit go to a swap file, which is gone with the
//! process.
//!
//! `cargo run --release --example memory_on_swap -- [DIR]`

use softfault::{Engine, Swap};

const PAGE: usize = 4096;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1);
    let folder = folder.unwrap_or_else(|| "/var/tmp".into());
    let (budget, bytes) = (16 << 20, 64 << 20);
    let swap = Swap::in_dir(folder).bytes(2 * bytes as u64);
    let engine = Engine::builder().memory(budget).swap(swap).build()?;
    let mut table = engine.map_anon(bytes)?;
    for page in 0..bytes / PAGE {
        table[page * PAGE] = page as u8;
    }
    let wrong = (0..bytes / PAGE).filter(|page| table[page * PAGE] != *page as u8);
    assert_eq!(wrong.count(), 0);
    println!(
        "{} MiB written and read again; {} MiB resident of {} MiB",
        bytes >> 20,
        table.resident_bytes() >> 20,
        budget >> 20
    );
    println!("{:#?}", engine.stats().swap);
    Ok(())
}
