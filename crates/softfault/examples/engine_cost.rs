//! The cost of making an engine and dropping it: the first of a process, and the median
//! of those that follow.
//!
//! ```sh
//! cargo run --release --example engine_cost
//! ```

use softfault::Engine;
use std::time::{Duration, Instant};

fn main() -> std::io::Result<()> {
    for memory in [16 << 20, 1 << 30] {
        let mut costs = Vec::new();
        for _ in 0..51 {
            let before = Instant::now();
            let engine = Engine::builder().memory(memory).build()?;
            let made = before.elapsed();
            let before = Instant::now();
            drop(engine);
            costs.push((made, before.elapsed()));
        }
        let (made, dropped) = costs.remove(0);
        println!(
            "{} MiB: the first is made in {made:?}, dropped in {dropped:?}",
            memory >> 20
        );
        let median = |of: fn(&(Duration, Duration)) -> Duration| {
            let mut times: Vec<_> = costs.iter().map(of).collect();
            times.sort_unstable();
            times[times.len() / 2]
        };
        println!(
            "    the {} that follow: {:?}, {:?}",
            costs.len(),
            median(|cost| cost.0),
            median(|cost| cost.1)
        );
    }
    Ok(())
}
