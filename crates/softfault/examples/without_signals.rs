//! The same engine by calls, over page tables of its own: no userfaultfd, no signal, every error a value. A fork is
//! all private memory as it was at one moment.
//!
//! `cargo run --release --example without_signals`

use softfault::Engine;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder().memory(16 << 20).build_soft()?;
    let map = engine.map_anon(1 << 20)?;
    map.write_at(b"before", 4096)?;
    let snapshot = engine.fork()?;
    map.write_at(b"after!", 4096)?;

    let mut bytes = [0; 6];
    map.read_at(&mut bytes, 4096)?;
    println!("now: {}", String::from_utf8_lossy(&bytes));
    snapshot.read_at(&map, &mut bytes, 4096)?;
    println!("at the fork: {}", String::from_utf8_lossy(&bytes));
    Ok(())
}
