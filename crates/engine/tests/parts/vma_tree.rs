//! The VMA tree alone: against the standard map, with 100,000 entries, and
//! with readers that hold no lock.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use softfault_engine::mm::tree::{Contended, Entry, FANOUT, NoNodes, Node, Parts, Tree, Walk};
use softfault_engine::slab::Slab;

fn slab<const F: usize>(nodes: u32) -> Arc<Slab<Node<F>>> {
    Arc::new(Slab::new(nodes))
}

fn tree<const F: usize>(nodes: u32) -> Tree<F> {
    Tree::new(slab(nodes)).unwrap()
}

fn clear<const F: usize>(tree: &Tree<F>) {
    let mut starts = Vec::new();
    tree.for_each(|entry| starts.push(entry.start));
    for start in starts {
        tree.remove(start, &mut Walk::default());
    }
}

#[test]
fn a_node_of_the_product_fills_four_cache_lines() {
    assert_eq!(size_of::<Node<FANOUT>>(), 256);
    assert_eq!(align_of::<Node<FANOUT>>(), 64);
}

#[derive(Debug, Clone)]
enum Op {
    Insert(usize),
    Remove(usize),
    Rekey(usize, bool),
    Floor(usize),
    Ceiling(usize),
}

fn ops(keys: usize) -> impl Strategy<Value = Vec<Op>> {
    // Keys near both ends of the address space too.
    let key = (0..keys, any::<bool>()).prop_map(
        move |(key, high)| {
            if high { usize::MAX - key } else { key }
        },
    );
    let op = (0..9, key).prop_map(|(op, key)| match op {
        0..=2 => Op::Insert(key),
        3..=5 => Op::Remove(key),
        6 => Op::Rekey(key, key % 2 == 0),
        7 => Op::Floor(key),
        _ => Op::Ceiling(key),
    });
    prop::collection::vec(op, 0..400)
}

/// Runs `ops` on a tree and on the standard map, and compares every answer.
fn agree<const F: usize>(ops: &[Op]) {
    let nodes = slab::<F>(2000);
    agree_in(&nodes, Tree::new(nodes.clone()).unwrap(), ops);
    // Both clusters of keys lie in several parts, and between them are many empty ones.
    let parts = [Parts::new(40, 5, 9), Parts::new(60, 62, 3)];
    for parts in parts {
        agree_in(&nodes, Tree::shared(nodes.clone(), parts).unwrap(), ops);
    }
}

fn agree_in<const F: usize>(nodes: &Slab<Node<F>>, tree: Tree<F>, ops: &[Op]) {
    let roots = nodes.in_use();
    // A tree that is dropped with VMAs panics: not where an assertion has, or no
    // smaller case would be looked for.
    let tree = ManuallyDrop::new(tree);
    let mut model = BTreeMap::new();
    let walk = &mut Walk::default();
    let entry = |(&start, &vma): (&usize, &u32)| Entry { start, vma };
    for (vma, op) in (0..).zip(ops) {
        match *op {
            Op::Insert(key) if !model.contains_key(&key) => {
                tree.insert(key, vma, walk).unwrap();
                model.insert(key, vma);
            }
            // A random key is seldom there: take the next one.
            Op::Insert(key) | Op::Remove(key) => {
                if let Some((&key, &vma)) = model.range(key..).next() {
                    assert_eq!(tree.remove(key, walk), vma);
                    model.remove(&key);
                }
            }
            // Up or down, as far as the next one.
            Op::Rekey(key, down) => {
                let old = model.range(key..).next().map(|(&old, _)| old);
                let Some(old) = old else { continue };
                let new = if down {
                    let below = model.range(..old).next_back();
                    below.map_or(0, |(&below, _)| below + 1)
                } else {
                    let above = model.range((Excluded(old), Unbounded)).next();
                    above.map_or(usize::MAX, |(&above, _)| above - 1)
                };
                if new != old {
                    tree.rekey(old, new, walk).unwrap();
                    let vma = model.remove(&old).unwrap();
                    model.insert(new, vma);
                }
            }
            Op::Floor(key) => assert_eq!(
                tree.floor(key, walk),
                Ok(model.range(..=key).next_back().map(entry))
            ),
            Op::Ceiling(key) => assert_eq!(
                tree.ceiling(key, walk),
                Ok(model.range(key..).next().map(entry))
            ),
        }
        let shape = tree.check();
        assert_eq!(shape.nodes, nodes.in_use() as usize);
    }
    let mut all = Vec::new();
    tree.for_each(|entry| all.push(entry));
    assert!(all.into_iter().eq(model.iter().map(entry)));
    assert_eq!(walk.restarts, 0);
    clear(&tree);
    assert_eq!(nodes.in_use(), roots);
    drop(ManuallyDrop::into_inner(tree));
    assert_eq!(nodes.in_use(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_the_standard_map(ops in ops(200)) {
        agree::<2>(&ops);
        agree::<3>(&ops);
        agree::<4>(&ops);
        agree::<7>(&ops);
        agree::<FANOUT>(&ops);
    }
}

/// Enters and takes out 100,000 mappings in the given orders and counts nodes
/// looked at: no operation may look at more than the height allows.
fn hundred_thousand(order: impl Fn(usize) -> usize, out: impl Fn(usize) -> usize) {
    const N: usize = 100_000;
    const PAGE: usize = 4096;
    // 2 + log5(100,000), as the tree's header derives it.
    const MOST_LEVELS: u64 = 9;
    let tree = tree::<FANOUT>(40_000);
    let count = |per_op: u64, op: &mut dyn FnMut(&mut Walk)| {
        let mut walk = Walk::default();
        op(&mut walk);
        assert!(walk.visits <= per_op, "{} nodes looked at", walk.visits);
        assert_eq!(walk.restarts, 0);
        walk.visits
    };
    let mut inserts = 0;
    for i in 0..N {
        let start = order(i) * 2 * PAGE;
        inserts += count(MOST_LEVELS, &mut |walk| {
            tree.insert(start, order(i) as u32, walk).unwrap();
        });
    }
    let shape = tree.check();
    assert_eq!(shape.entries, N);
    assert!(shape.levels as u64 <= MOST_LEVELS);
    assert!(shape.nodes <= N / 5, "{} nodes", shape.nodes);
    let mut finds = 0;
    for i in 0..N {
        let vma = i as u32;
        // In the gap behind it: still the floor.
        for address in [i * 2 * PAGE, (i * 2 + 1) * PAGE] {
            finds += count(2 * MOST_LEVELS, &mut |walk| {
                let start = i * 2 * PAGE;
                assert_eq!(tree.floor(address, walk), Ok(Some(Entry { start, vma })));
            });
        }
    }
    let mut removes = 0;
    for i in 0..N {
        removes += count(MOST_LEVELS, &mut |walk| {
            assert_eq!(tree.remove(out(i) * 2 * PAGE, walk), out(i) as u32);
        });
    }
    println!(
        "{} levels, {} nodes; looked at per insert {:.2}, find {:.2}, remove {:.2}",
        shape.levels,
        shape.nodes,
        inserts as f64 / N as f64,
        finds as f64 / (2 * N) as f64,
        removes as f64 / N as f64,
    );
    assert_eq!(tree.check().nodes, 1);
}

#[test]
fn a_hundred_thousand_upwards() {
    hundred_thousand(|i| i, |i| i);
}

#[test]
fn a_hundred_thousand_downwards() {
    hundred_thousand(|i| 99_999 - i, |i| i);
}

#[test]
fn a_hundred_thousand_scattered() {
    // Both multipliers have no factor in common with 100,000.
    hundred_thousand(|i| i * 70_507 % 100_000, |i| i * 31_337 % 100_000);
}

#[test]
fn thinning_out_leaves_no_thin_nodes() {
    const N: usize = 20_000;
    let tree = tree::<FANOUT>(8_000);
    let walk = &mut Walk::default();
    for i in 0..N {
        tree.insert(i, i as u32, walk).unwrap();
    }
    for i in (0..N).filter(|i| i % 50 != 0) {
        tree.remove(i, walk);
    }
    // 400 are left: with half-full pairs of leaves that is 80 leaves at most.
    let shape = tree.check();
    assert_eq!(shape.entries, 400);
    assert!(shape.nodes <= 100, "{} nodes", shape.nodes);
    clear(&tree);
}

/// Two nodes above the leaves are joined, and by that two leaves of one entry each
/// become neighbours: they are joined too.
#[test]
fn what_meets_where_two_nodes_are_joined_is_joined() {
    // Seven leaves of seven under one node, and a leaf of one under the next.
    let tree = tree::<7>(20);
    let walk = &mut Walk::default();
    for key in 0..50 {
        tree.insert(key, 0, walk).unwrap();
    }
    // The seventh leaf keeps one; then the first five go, and two stay with the other node's one.
    for key in (43..49).chain(0..35) {
        tree.remove(key, walk);
        tree.check();
    }
    // The root and two leaves: seven entries, and two.
    assert_eq!(tree.check().nodes, 3);
    clear(&tree);
}

#[test]
fn without_nodes_an_insert_changes_nothing() {
    let nodes = slab::<2>(4);
    let tree = Tree::new(nodes.clone()).unwrap();
    let walk = &mut Walk::default();
    let mut entered = 0;
    while tree.insert(entered, 0, walk).is_ok() {
        entered += 1;
    }
    assert_eq!(tree.insert(entered, 0, walk), Err(NoNodes));
    assert_eq!(tree.check().entries, entered);
    assert_eq!(tree.check().nodes, nodes.in_use() as usize);
    assert_eq!(
        tree.floor(entered, walk).unwrap().unwrap().start,
        entered - 1
    );
    tree.remove(0, walk);
    tree.insert(0, 0, walk).unwrap();
    clear(&tree);
}

#[test]
#[should_panic(expected = "starts at 0x10 already")]
fn entering_twice_is_refused() {
    let tree = ManuallyDrop::new(tree::<4>(4));
    tree.insert(0x10, 1, &mut Walk::default()).unwrap();
    let _ = tree.insert(0x10, 2, &mut Walk::default());
}

#[test]
#[should_panic(expected = "no VMA starts there")]
fn taking_out_a_missing_entry_is_refused() {
    let tree = tree::<4>(4);
    tree.remove(0x10, &mut Walk::default());
}

#[test]
#[should_panic(expected = "dropped with 1 VMAs")]
fn dropping_a_tree_with_vmas_is_refused() {
    let tree = tree::<4>(4);
    tree.insert(0x10, 1, &mut Walk::default()).unwrap();
}

/// Two trees on one slab. Each writer keeps every 16th key in place and enters
/// and takes out the others; readers hold no lock and must always see the
/// fixed keys, and of the other tree nothing.
#[test]
fn readers_without_a_lock_see_the_entries() {
    const KEYS: usize = 4096;
    const FIXED: usize = 16;
    const ROUNDS: usize = 30;
    let nodes = slab::<4>(8192);
    let trees = [0, 1].map(|_| Tree::<4>::new(nodes.clone()).unwrap());
    for (tag, tree) in trees.iter().enumerate() {
        for key in (FIXED..KEYS).step_by(FIXED) {
            tree.insert(key, (2 * key + tag) as u32, &mut Walk::default())
                .unwrap();
        }
    }
    let done = [AtomicBool::new(false), AtomicBool::new(false)];
    let answers = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (tag, tree) in trees.iter().enumerate() {
            let (done, answers) = (&done[tag], &answers);
            scope.spawn(move || {
                let walk = &mut Walk::default();
                for round in 0..ROUNDS {
                    let others = || (0..KEYS).filter(|key| key % FIXED != 0 && *key > FIXED);
                    for key in others() {
                        tree.insert(key, (2 * key + tag) as u32, walk).unwrap();
                    }
                    // Every other round from the far end.
                    let mut out: Vec<_> = others().collect();
                    if round % 2 == 0 {
                        out.reverse();
                    }
                    for key in out {
                        tree.remove(key, walk);
                    }
                }
                done.store(true, Ordering::Release);
            });
            scope.spawn(move || {
                let walk = &mut Walk::default();
                let mut key = tag;
                let mut looked = 0;
                while !done.load(Ordering::Acquire) || looked < 10_000 {
                    key = (key + 1237) % KEYS;
                    looked += 1;
                    let found = match tree.floor(key, walk) {
                        Err(Contended) => continue,
                        Ok(found) => found,
                    };
                    let fixed = key / FIXED * FIXED;
                    if fixed == 0 {
                        assert_eq!(found, None);
                        continue;
                    }
                    let found = found.expect("a key that is always there");
                    assert!((fixed..=key).contains(&found.start));
                    assert_eq!(found.vma as usize, 2 * found.start + tag);
                    let next = tree.ceiling(key, walk);
                    if let Ok(Some(next)) = next {
                        assert!((key..=fixed + FIXED).contains(&next.start));
                        assert_eq!(next.vma as usize, 2 * next.start + tag);
                    }
                }
                answers.fetch_add(looked, Ordering::Relaxed);
                println!("{looked} lookups: {walk:?}");
            });
        }
    });
    assert!(answers.load(Ordering::Relaxed) >= 20_000);
    for tree in &trees {
        tree.check();
        clear(tree);
    }
}
