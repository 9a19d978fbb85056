//! Memory of the NUMA nodes: bytes that all CPUs move share a node's bandwidth.
//!
//! A node serves requests in the order in which they come. A transfer takes as long as the CPU needs for it, or until
//! the node has moved its bytes, whichever is later.

use super::kernel::Machine;
use crate::topology::MemoryCosts;

/// Picoseconds of a second.
const SECOND: u128 = 1_000_000_000_000;

/// The memory of all nodes.
#[derive(Debug)]
pub struct Memory {
    costs: MemoryCosts,
    /// When each node has moved all bytes that were asked of it, in picoseconds.
    idle_at: Vec<u64>,
}

impl Memory {
    /// That of a machine with so many nodes.
    pub fn new(costs: &MemoryCosts, nodes: usize) -> Self {
        Self {
            costs: costs.clone(),
            idle_at: vec![0; nodes],
        }
    }

    /// Moves bytes of a node from `now` on. Returns how long that takes: `cost`, or longer.
    pub fn transfer(&mut self, node: usize, bytes: u64, now: u64, cost: u64) -> u64 {
        let busy = u128::from(bytes) * SECOND / u128::from(self.costs.bandwidth.max(1));
        let idle_at = &mut self.idle_at[node];
        *idle_at = now
            .max(*idle_at)
            .saturating_add(u64::try_from(busy).unwrap_or(u64::MAX));
        cost.max(*idle_at - now)
    }
}

impl Machine {
    /// Moves bytes between the running CPU and its own node, where a thread's pages are: they are of the node on
    /// which they were first touched. Returns how long it takes: `cost`, or longer.
    pub fn transfer(&mut self, bytes: u64, cost: u64) -> u64 {
        let node = self.distances.node(self.cpu);
        self.memory.transfer(node, bytes, self.now, cost)
    }

    /// Loads a line of a node that no cache has. Returns how long it takes.
    pub fn load(&mut self, node: usize, line: u64) -> u64 {
        let cost = match self.distances.is_near(self.cpu, node) {
            true => self.costs().memory,
            false => self.memory.costs.remote,
        };
        self.memory.transfer(node, line, self.now, cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Memory {
        let costs = MemoryCosts {
            bandwidth: 1_000_000_000_000,
            remote: 1,
        };
        Memory::new(&costs, 2)
    }

    #[test]
    fn a_node_that_is_idle_takes_no_longer_than_the_cpu() {
        let mut memory = memory();
        assert_eq!(memory.transfer(0, 4096, 0, 10_000), 10_000);
        // It was busy for 4096 ps; the next request comes later.
        assert_eq!(memory.transfer(0, 4096, 10_000, 10_000), 10_000);
    }

    #[test]
    fn requests_of_one_moment_wait_for_each_other_and_nodes_do_not() {
        let mut memory = memory();
        let times: Vec<u64> = (0..4).map(|_| memory.transfer(0, 4096, 0, 5000)).collect();
        assert_eq!(times, [5000, 8192, 12_288, 16_384]);
        assert_eq!(memory.transfer(1, 4096, 0, 5000), 5000);
        // 20 us later all of it has been moved.
        assert_eq!(memory.transfer(0, 4096, 20_000, 5000), 5000);
    }
}
