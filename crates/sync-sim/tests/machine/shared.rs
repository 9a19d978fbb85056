//! What CPUs share: the units of a core, and the memory of a node.

use crate::program::bare;
use softfault_sync_sim as sync;
use sync::machine::{self, Config};
use sync::topology::{Placement, Topology};

/// Runs so many threads, each on a CPU of its own, and returns how long the whole takes, in nanoseconds.
fn ns(topology: Topology, threads: usize, body: impl Fn() + Clone + 'static) -> u64 {
    let ran = machine::run(Config::new(topology, threads + 1, 0), move || {
        let start = |_| {
            let body = body.clone();
            machine::spawn_named("", 0, body)
        };
        let threads: Vec<_> = (0..threads).map(start).collect();
        for thread in threads {
            thread.join().expect("it ends");
        }
    });
    ran.expect("nobody waits for ever").1.elapsed_ns
}

fn smt(threads: u16, cores: u16) -> Topology {
    Topology {
        smt: threads,
        smt_extra: 50,
        ..bare(cores)
    }
}

fn work() {
    sync::work(1000);
}

#[test]
fn work_takes_longer_while_a_sibling_works() {
    // Packed: each core has a thread before any has its second one.
    assert_eq!(ns(smt(2, 2), 1, work), 1000);
    assert_eq!(ns(smt(2, 2), 3, work), 1000);
    // Six of four cores share two of them.
    assert_eq!(ns(smt(2, 2), 6, work), 1500);
    assert_eq!(ns(smt(1, 4), 6, work), 1000);
}

#[test]
fn a_sibling_that_sleeps_takes_nothing() {
    // Two cores. Threads begin on the first, the second, the first and the second.
    let last = |sleeps: bool| {
        let ran = machine::run(Config::new(smt(2, 1), 4, 0), move || {
            let second = machine::spawn_named("", 0, move || match sleeps {
                true => machine::sleep_until_ns(5000),
                false => sync::work(5000),
            });
            let third = machine::spawn_named("", 0, || {});
            let fourth = machine::spawn_named("", 0, || {
                sync::work(1000);
                machine::now_ns()
            });
            let ended = fourth.join().expect("it ends");
            third.join().expect("it ends");
            second.join().expect("it ends");
            ended
        });
        ran.expect("nobody waits for ever").0
    };
    assert_eq!(last(true), 1000);
    assert_eq!(last(false), 1500);
}

#[test]
fn threads_of_a_node_share_its_bandwidth_and_those_of_two_nodes_do_not() {
    let clear = || machine::clears(4096);
    let limited = |placement| Topology {
        placement,
        // A page each 50 ns, where a CPU clears one in 100.
        memory: sync::topology::MemoryCosts {
            bandwidth: 81_920_000_000,
            remote: 200_000,
        },
        ..bare(8)
    };
    assert_eq!(ns(limited(Placement::Packed), 1, clear), 100);
    assert_eq!(ns(limited(Placement::Packed), 2, clear), 100);
    // Six are 300 ns of one node's time; of two nodes' at most 200.
    assert_eq!(ns(limited(Placement::Packed), 6, clear), 300);
    assert!(ns(limited(Placement::Spread), 6, clear) <= 200);
}

#[test]
fn a_load_from_another_socket_costs_more() {
    let topology = || Topology {
        memory: sync::topology::MemoryCosts {
            bandwidth: u64::MAX,
            remote: 200_000,
        },
        ..bare(4)
    };
    // Packed: all are on the first socket.
    assert_eq!(ns(topology(), 1, || machine::loads_from(0)), 90);
    assert_eq!(ns(topology(), 1, || machine::loads_from(1)), 200);
}

#[test]
fn a_page_that_was_given_back_is_no_call_for_the_next_owner() {
    let round = |pages: usize| {
        move || {
            let bytes = pages * 4096;
            for _ in 0..10 {
                let map = sync::pages::map(bytes).expect("memory");
                // SAFETY: mapped just now, and used by nobody.
                unsafe { sync::pages::unmap(map, bytes) };
            }
        }
    };
    // A call takes a microsecond. Of single pages the first alone is one; the list's line comes from memory once, and
    // clearing a page takes 100 ns.
    assert_eq!(ns(bare(2), 1, round(1)), 1000 + 90 + 10 * 100);
    assert_eq!(ns(bare(2), 1, round(2)), 20_000);
}
