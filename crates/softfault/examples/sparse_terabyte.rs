//! Maps a sparse file of 1 TiB, and touches one page in every 2 MiB of it under
//! a budget of 256 MiB: the cost of the map before and after.
//!
//! `cargo run --release --example sparse_terabyte -p softfault`

use softfault::Engine;
use std::time::Instant;

/// Kilobytes in a line of `/proc/self/status`.
fn status_kb(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn main() -> std::io::Result<()> {
    let path = std::env::temp_dir().join(format!("softfault-terabyte-{}", std::process::id()));
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    file.set_len(1 << 40)?;
    let engine = Engine::builder().memory(256 << 20).build()?;
    let resident = || status_kb("VmRSS:") + status_kb("VmPTE:");

    let (before, began) = (resident(), Instant::now());
    // SAFETY: nobody writes to the file: it has no name.
    let map = unsafe { engine.map(&file) }?;
    println!(
        "mapped in {:?}, {} KiB more resident (page tables included)",
        began.elapsed(),
        resident().saturating_sub(before)
    );

    let began = Instant::now();
    let sum: u64 = map
        .iter()
        .step_by(2 << 20)
        .map(|&byte| u64::from(byte))
        .sum();
    assert_eq!(sum, 0, "a hole is zeros");
    let stats = engine.stats();
    println!(
        "{} pages touched in {:?}: at most {} of {} KiB of budget, {} KiB resident now",
        map.len() >> 21,
        began.elapsed(),
        stats.peak_bytes >> 10,
        stats.budget_bytes >> 10,
        resident()
    );
    Ok(())
}
