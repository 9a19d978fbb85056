//! Machines like another: each cost drawn anew, for bands over costs
//! that are not known exactly.

use sync::machine::Random;
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
    let mut random = Random::new(seed);
    costs(&mut varied, |_, cost| {
        let draw = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let factor = 1.0 + percent / 100.0 * (2.0 * draw - 1.0);
        *cost = (*cost as f64 * factor.max(0.0)).round() as u64;
    });
    possible(&mut varied);
    varied
}

/// The names of all costs, in the order of [`scaled`]'s numbers.
pub fn names() -> Vec<&'static str> {
    let mut names = Vec::new();
    let any = &mut crate::preset::all().remove(0);
    costs(any, |name, _| names.push(name));
    names
}

/// The topology with one of its costs, by its place in [`names`], that many times as high. Where that lets a farther line
/// cost less than a nearer one, the farther one costs as much. And a core keeps a line for a read-modify-write between two hits
/// at least: with less, exchanges of many cores would hardly ever succeed.
pub fn scaled(topology: &Topology, which: usize, factor: f64) -> Topology {
    let mut scaled = topology.clone();
    let mut at = 0;
    costs(&mut scaled, |_, cost| {
        if at == which {
            *cost = (*cost as f64 * factor).round() as u64;
        }
        at += 1;
    });
    if ["line.hit", "line.rmw", "line.hold"].contains(&names()[which]) {
        let line = &mut scaled.line;
        line.hold = line.hold.max(line.rmw + 2 * line.hit);
    }
    possible(&mut scaled);
    scaled
}

/// Makes costs those of a machine that can be.
fn possible(topology: &mut Topology) {
    let line = &mut topology.line;
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
        &mut topology.scheduler.slice,
        &mut topology.disk.bandwidth,
        &mut topology.memory.bandwidth,
    ];
    for cost in above_zero {
        *cost = (*cost).max(1);
    }
    topology.memory.remote = topology.memory.remote.max(topology.line.memory);
}

/// Every cost and its name, in an order that stays: a seed means the same machine tomorrow.
pub(crate) fn costs(topology: &mut Topology, mut each: impl FnMut(&'static str, &mut u64)) {
    macro_rules! each {
        ($($($name:ident).+),+ $(,)?) => {
            $(each(
                concat!($(stringify!($name), "."),+).trim_end_matches('.'),
                &mut topology.$($name).+,
            );)+
        };
    }
    each!(
        line.code,
        line.hit,
        line.rmw,
        line.sibling,
        line.cluster,
        line.node,
        line.socket,
        line.remote,
        line.memory,
        line.hold,
        scheduler.call,
        scheduler.switch,
        scheduler.wake,
        scheduler.wake_latency,
        scheduler.slice,
        page.clear,
        page.copy,
        page.map,
        disk.latency,
        disk.bandwidth,
        disk.submit,
        kernel.signal,
        kernel.signal_lock,
        kernel.uffd_copy,
        kernel.uffd_copy_page,
        kernel.zap,
        kernel.zap_page,
        kernel.ipi_send,
        kernel.ipi_receive,
        kernel.map,
        smt_extra,
        memory.bandwidth,
        memory.remote,
        disk.request,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    fn all(topology: &Topology) -> Vec<u64> {
        let mut values = Vec::new();
        costs(&mut topology.clone(), |_, cost| values.push(*cost));
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
    fn a_scaled_machine_differs_in_one_cost_and_can_be() {
        let topology = preset::named("zen5-256").unwrap();
        let names = names();
        assert_eq!(names.len(), all(&topology).len());
        for (which, name) in names.iter().enumerate() {
            for factor in [0.5, 2.0] {
                let scaled = scaled(&topology, which, factor);
                assert_eq!(preset::check(&scaled), Ok(()), "{name}");
                let pairs = all(&topology).into_iter().zip(all(&scaled));
                let moved = pairs.enumerate().filter(|(_, (a, b))| a != b);
                let moved: Vec<&str> = moved.map(|(at, _)| names[at]).collect();
                // Distances take each other along, code and requests are nothing, and lines are not kept for less.
                let at_most = if name.starts_with("line.") { 6 } else { 1 };
                assert!(moved.len() <= at_most, "{name}: {moved:?}");
                let is_nothing = ["line.code", "disk.request"].contains(name);
                let stays = is_nothing || (*name, factor) == ("line.hold", 0.5);
                assert_eq!(moved.contains(name), !stays, "{name}");
            }
        }
    }

    #[test]
    fn no_percentage_makes_a_machine_that_cannot_be() {
        let topology = preset::named("x86-256").unwrap();
        for seed in 0..500 {
            assert_eq!(preset::check(&vary(&topology, seed, 100.0)), Ok(()));
        }
    }
}
