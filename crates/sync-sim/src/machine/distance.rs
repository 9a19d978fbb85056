//! Where CPUs are, and how far from each other.

use crate::topology::{Placement, Topology};

/// The most CPUs of a machine.
pub const MOST_CPUS: usize = 256;
const WORDS: usize = MOST_CPUS / 64;
/// Sibling, cluster, node, socket, remote.
const LEVELS: usize = 5;

/// A set of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuSet([u64; WORDS]);

impl CpuSet {
    pub const NONE: Self = Self([0; WORDS]);

    #[inline]
    pub fn add(&mut self, cpu: u16) {
        self.0[usize::from(cpu) / 64] |= 1 << (cpu % 64);
    }

    #[inline]
    pub fn remove(&mut self, cpu: u16) {
        self.0[usize::from(cpu) / 64] &= !(1 << (cpu % 64));
    }

    #[inline]
    pub fn has(&self, cpu: u16) -> bool {
        self.0[usize::from(cpu) / 64] >> (cpu % 64) & 1 != 0
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The lowest CPU of both.
    #[inline]
    fn first_of_both(&self, other: &Self) -> Option<u16> {
        (0..WORDS).find_map(|word| {
            let both = self.0[word] & other.0[word];
            (both != 0).then(|| (word * 64) as u16 + both.trailing_zeros() as u16)
        })
    }

    /// The CPUs of the set.
    pub fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        let words = self.0;
        (0..MOST_CPUS as u16).filter(move |&cpu| Self(words).has(cpu))
    }

    /// True if all CPUs of the set are in the other one.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(a, b)| a & !b == 0)
    }

    #[inline]
    fn meets(&self, other: &Self) -> bool {
        let [a, b, c, d] = self.0;
        let [e, f, g, h] = other.0;
        (a & e) | (b & f) | (c & g) | (d & h) != 0
    }
}

/// All distances of a machine. CPU 0 is the one that is filled first, and so on.
#[derive(Debug)]
pub struct Distances {
    cpus: usize,
    /// The cost of a line from one CPU to another, in picoseconds.
    costs: Vec<u32>,
    /// For each CPU, those at each level, nearest first.
    levels: Vec<[CpuSet; LEVELS]>,
    /// The cost of a line at each level.
    level_costs: [u64; LEVELS],
    /// The NUMA node of each CPU.
    nodes: Vec<usize>,
    /// NUMA nodes of a socket.
    nodes_of_socket: usize,
}

impl Distances {
    /// The first `cores` CPUs, in the order of placement.
    pub fn new(topology: &Topology, cores: usize) -> Self {
        let places = places(topology);
        assert!(
            (1..=places.len()).contains(&cores) && cores <= MOST_CPUS,
            "{cores} cores of a machine that has {}, and {MOST_CPUS} at most",
            places.len()
        );
        let line = &topology.line;
        let level_costs = [
            line.sibling,
            line.cluster,
            line.node,
            line.socket,
            line.remote,
        ];
        let mut costs = vec![0; cores * cores];
        let mut levels = vec![[CpuSet::NONE; LEVELS]; cores];
        for (a, place) in places[..cores].iter().enumerate() {
            for (b, other) in places[..cores].iter().enumerate() {
                if a == b {
                    continue;
                }
                let level = level(place, other);
                levels[a][level].add(b as u16);
                costs[a * cores + b] =
                    u32::try_from(level_costs[level]).expect("a transfer takes less than 4 ms");
            }
        }
        let nodes_of_socket = usize::from(topology.nodes);
        let node = |place: &Place| usize::from(place[0]) * nodes_of_socket + usize::from(place[1]);
        Self {
            cpus: cores,
            costs,
            levels,
            level_costs,
            nodes: places[..cores].iter().map(node).collect(),
            nodes_of_socket,
        }
    }

    /// The other hardware threads of a CPU's core.
    pub fn siblings(&self, cpu: u16) -> &CpuSet {
        &self.levels[usize::from(cpu)][0]
    }

    /// The NUMA node of a CPU.
    #[inline]
    pub fn node(&self, cpu: u16) -> usize {
        self.nodes[usize::from(cpu)]
    }

    /// Whether a node is of the CPU's own socket.
    pub fn is_near(&self, cpu: u16, node: usize) -> bool {
        self.node(cpu) / self.nodes_of_socket == node / self.nodes_of_socket
    }

    /// The cost of a line from one CPU to another.
    #[inline]
    pub fn cost(&self, from: u16, to: u16) -> u64 {
        u64::from(self.costs[usize::from(from) * self.cpus + usize::from(to)])
    }

    /// The cost of a line from the nearest sharer. `None` if
    /// there is no other.
    #[inline]
    pub fn nearest(&self, cpu: u16, sharers: &CpuSet) -> Option<u64> {
        let levels = &self.levels[usize::from(cpu)];
        let level = (0..LEVELS).find(|&level| levels[level].meets(sharers))?;
        Some(self.level_costs[level])
    }

    /// The time until the farthest sharer has given a line up. `None` if
    /// no other has it.
    #[inline]
    pub fn farthest(&self, cpu: u16, sharers: &CpuSet) -> Option<u64> {
        let levels = &self.levels[usize::from(cpu)];
        let level = (0..LEVELS)
            .rev()
            .find(|&level| levels[level].meets(sharers))?;
        Some(self.level_costs[level])
    }

    /// The CPU of `set` that is nearest, itself first.
    pub fn nearest_cpu(&self, cpu: u16, set: &CpuSet) -> Option<u16> {
        if set.has(cpu) {
            return Some(cpu);
        }
        let levels = &self.levels[usize::from(cpu)];
        levels.iter().find_map(|level| level.first_of_both(set))
    }

    /// The first CPU of `set` in the order of placement.
    pub fn first_cpu(&self, set: &CpuSet) -> Option<u16> {
        set.first_of_both(set)
    }
}

/// Socket, node, cluster, core, hardware thread.
type Place = [u16; 5];

/// Which level of `level_costs` is between two places.
fn level(a: &Place, b: &Place) -> usize {
    match a.iter().zip(b).position(|(a, b)| a != b) {
        Some(differ) => LEVELS - 1 - differ,
        None => 0,
    }
}

/// All CPUs in the order in which they are filled.
fn places(topology: &Topology) -> Vec<Place> {
    let [sockets, nodes, clusters, cores, smt] = [
        topology.sockets,
        topology.nodes,
        topology.clusters,
        topology.cores,
        topology.smt,
    ];
    let mut places: Vec<Place> = Vec::new();
    for socket in 0..sockets {
        for node in 0..nodes {
            for cluster in 0..clusters {
                for core in 0..cores {
                    places.extend((0..smt).map(|thread| [socket, node, cluster, core, thread]));
                }
            }
        }
    }
    places.sort_by_key(
        |&[socket, node, cluster, core, thread]| match topology.placement {
            Placement::Spread => [thread, core, cluster, node, socket],
            Placement::Packed => [thread, socket, node, cluster, core],
        },
    );
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_places() {
        let here = [0, 0, 0, 0, 0];
        assert_eq!(level(&here, &[0, 0, 0, 0, 1]), 0);
        assert_eq!(level(&here, &[0, 0, 0, 1, 0]), 1);
        assert_eq!(level(&here, &[0, 0, 1, 0, 0]), 2);
        assert_eq!(level(&here, &[0, 1, 0, 0, 1]), 3);
        assert_eq!(level(&here, &[1, 0, 0, 0, 0]), 4);
    }
}
