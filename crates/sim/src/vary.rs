//! Machines like another: each cost drawn anew, for bands over costs
//! that are not known exactly.

use sync::topology::Topology;

/// The topology with each of its costs drawn independently, evenly between
/// `percent` below and `percent` above, by the seed alone. The shape (sockets to
/// SMT, depth of the disk, how often a lock is taken) stays, and farther lines
/// still do not cost less. 0 % is the topology itself.
pub fn vary(topology: &Topology, seed: u64, percent: f64) -> Topology {
    let mut varied = topology.clone();
    if percent <= 0.0 {
        return varied;
    }
    let mut state = seed;
    costs(&mut varied, |cost| {
        let draw = (next(&mut state) >> 11) as f64 / (1u64 << 53) as f64;
        let factor = 1.0 + percent / 100.0 * (2.0 * draw - 1.0);
        *cost = (*cost as f64 * factor.max(0.0)).round() as u64;
    });
    let line = &mut varied.line;
    line.hit = line.hit.max(1);
    // Two that were near may have passed each other.
    let mut least = line.hit;
    for distance in [
        &mut line.sibling,
        &mut line.cluster,
        &mut line.node,
        &mut line.socket,
        &mut line.remote,
    ] {
        least = least.max(*distance);
        *distance = least;
    }
    let above_zero = [
        &mut line.memory,
        &mut varied.scheduler.slice,
        &mut varied.disk.bandwidth,
    ];
    for cost in above_zero {
        *cost = (*cost).max(1);
    }
    varied
}

/// Every cost, in an order that stays: a seed means the same machine tomorrow.
pub(crate) fn costs(topology: &mut Topology, mut each: impl FnMut(&mut u64)) {
    let line = &mut topology.line;
    let scheduler = &mut topology.scheduler;
    let page = &mut topology.page;
    let disk = &mut topology.disk;
    let kernel = &mut topology.kernel;
    for cost in [
        &mut line.code,
        &mut line.hit,
        &mut line.rmw,
        &mut line.sibling,
        &mut line.cluster,
        &mut line.node,
        &mut line.socket,
        &mut line.remote,
        &mut line.memory,
        &mut line.hold,
        &mut scheduler.call,
        &mut scheduler.switch,
        &mut scheduler.wake,
        &mut scheduler.wake_latency,
        &mut scheduler.slice,
        &mut page.clear,
        &mut page.copy,
        &mut page.map,
        &mut disk.latency,
        &mut disk.bandwidth,
        &mut disk.submit,
        &mut kernel.signal,
        &mut kernel.signal_lock,
        &mut kernel.uffd_copy,
        &mut kernel.uffd_copy_page,
        &mut kernel.zap,
        &mut kernel.zap_page,
        &mut kernel.ipi_send,
        &mut kernel.ipi_receive,
        &mut kernel.map,
    ] {
        each(cost);
    }
}

/// SplitMix64: well mixed from any seed, and the same everywhere.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    fn all(topology: &Topology) -> Vec<u64> {
        let mut values = Vec::new();
        costs(&mut topology.clone(), |cost| values.push(*cost));
        values
    }

    #[test]
    fn costs_stay_within_their_bounds_and_move() {
        for topology in preset::all() {
            let mut moved = vec![false; all(&topology).len()];
            for seed in 0..200 {
                let varied = vary(&topology, seed, 20.0);
                assert_eq!(preset::check(&varied), Ok(()));
                for (at, (before, after)) in all(&topology).iter().zip(all(&varied)).enumerate() {
                    let (before, after) = (*before as f64, after as f64);
                    let within = 0.8 * before - 1.0..=1.2 * before + 1.0;
                    assert!(within.contains(&after), "cost {at}: {before} to {after}");
                    moved[at] |= before != after || before == 0.0;
                }
                assert_eq!(varied.cpus(), topology.cpus());
            }
            assert!(moved.iter().all(|&moved| moved), "a cost is never drawn");
        }
    }

    #[test]
    fn a_seed_means_one_machine_and_none_is_the_first() {
        let topology = preset::named("zen5-256").unwrap();
        assert_eq!(vary(&topology, 7, 10.0), vary(&topology, 7, 10.0));
        assert_ne!(vary(&topology, 7, 10.0), vary(&topology, 8, 10.0));
        assert_eq!(vary(&topology, 7, 0.0), topology);
        // Costs are drawn apart: no one factor for all.
        let varied = vary(&topology, 1, 50.0);
        let factors = all(&topology).into_iter().zip(all(&varied));
        let factors = factors.filter(|(before, _)| *before > 0);
        let factors: Vec<f64> = factors.map(|(a, b)| b as f64 / a as f64).collect();
        assert!(factors.iter().any(|f| (f - factors[0]).abs() > 0.2));
    }

    #[test]
    fn no_percentage_makes_a_machine_that_cannot_be() {
        let topology = preset::named("x86-256").unwrap();
        for seed in 0..500 {
            assert_eq!(preset::check(&vary(&topology, seed, 100.0)), Ok(()));
        }
    }
}
