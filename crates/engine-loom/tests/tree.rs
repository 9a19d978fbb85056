//! Lookups in the VMA tree without a lock, against its one writer. Nodes have
//! two or three entries here, so that a few operations split, join and reuse
//! them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use loom::thread;
use softfault_engine_loom::mm::tree::{Contended, Node, Tree, Walk};
use softfault_engine_loom::slab::Slab;

/// What a lookup answered: the start it found.
type Answer = Result<Option<usize>, Contended>;

/// Runs a model to its end, with at most `preemptions` a run, and returns the
/// answers of all its runs.
fn explore(
    preemptions: usize,
    model: impl Fn() -> Vec<Answer> + Send + Sync + 'static,
) -> BTreeSet<String> {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let all = seen.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // No limit of time: when `check` returns, everything was looked at.
    builder.max_duration = None;
    builder.max_permutations = None;
    builder.max_branches = 20_000;
    builder.check(move || {
        let answers = model();
        all.lock().unwrap().insert(format!("{answers:?}"));
    });
    let seen = seen.lock().unwrap();
    println!("{seen:#?}");
    seen.clone()
}

fn slab<const F: usize>(nodes: u32) -> Arc<Slab<Node<F>>> {
    Arc::new(Slab::new(nodes))
}

/// A tree in which key and value are the same but for the tag.
fn tree<const F: usize>(nodes: &Arc<Slab<Node<F>>>, tag: u32, keys: &[usize]) -> Arc<Tree<F>> {
    let tree = Tree::new(nodes.clone()).unwrap();
    for &key in keys {
        insert(&tree, tag, key);
    }
    Arc::new(tree)
}

fn insert<const F: usize>(tree: &Tree<F>, tag: u32, key: usize) {
    let vma = tag + key as u32;
    tree.insert(key, vma, &mut Walk::default()).unwrap();
}

fn remove<const F: usize>(tree: &Tree<F>, key: usize) {
    tree.remove(key, &mut Walk::default());
}

fn floor<const F: usize>(tree: &Tree<F>, tag: u32, key: usize) -> Answer {
    let found = tree.floor(key, &mut Walk::default())?;
    // The two halves of an entry belong together and to this tree.
    Ok(found.map(|found| {
        assert_eq!(found.vma, tag + found.start as u32);
        found.start
    }))
}

fn clear<const F: usize>(tree: &Tree<F>) {
    tree.check();
    let mut starts = Vec::new();
    tree.for_each(|entry| starts.push(entry.start));
    starts.into_iter().for_each(|start| remove(tree, start));
}

#[test]
fn a_lookup_sees_an_insert_that_splits_the_root_or_not() {
    let seen = explore(3, || {
        let nodes = slab::<2>(4);
        let tree = tree(&nodes, 0, &[10, 20]);
        let reader = tree.clone();
        let reader = thread::spawn(move || floor(&reader, 0, 25));
        insert(&tree, 0, 15);
        let last = reader.join().unwrap();
        // 20 is there all the time, and moves to another node.
        assert!(matches!(last, Ok(Some(20)) | Err(Contended)));
        clear(&tree);
        vec![last]
    });
    assert!(seen.contains("[Ok(Some(20))]"));
}

#[test]
fn a_lookup_goes_down_while_a_leaf_below_it_splits() {
    let seen = explore(2, || {
        let nodes = slab::<2>(8);
        // The root has the leaves [10] and [20, 30].
        let tree = tree(&nodes, 0, &[10, 20, 30]);
        remove(&tree, 10);
        insert(&tree, 0, 10);
        let reader = tree.clone();
        let reader = thread::spawn(move || floor(&reader, 0, 30));
        insert(&tree, 0, 25);
        let found = reader.join().unwrap();
        assert!(matches!(found, Ok(Some(30)) | Err(Contended)));
        clear(&tree);
        vec![found]
    });
    assert!(seen.contains("[Ok(Some(30))]"));
}

#[test]
fn a_node_that_came_back_in_another_tree_is_not_believed() {
    let seen = explore(2, || {
        let nodes = slab::<2>(8);
        let one = tree(&nodes, 0, &[10, 20, 30]);
        let other = tree(&nodes, 1000, &[25, 28]);
        let reader = one.clone();
        let reader = thread::spawn(move || floor(&reader, 0, 30));
        // Gives nodes back, which the other tree takes at once.
        remove(&one, 30);
        insert(&other, 1000, 22);
        let found = reader.join().unwrap();
        assert!(matches!(found, Ok(Some(30 | 20)) | Err(Contended)));
        clear(&one);
        clear(&other);
        vec![found]
    });
    assert!(seen.contains("[Ok(Some(30))]") && seen.contains("[Ok(Some(20))]"));
}

#[test]
fn what_is_found_in_an_earlier_leaf_is_still_the_floor() {
    let seen = explore(2, || {
        let nodes = slab::<2>(8);
        // The leaves are [10] and [30]; the second begins at 20.
        let tree = tree(&nodes, 0, &[10, 20, 30]);
        remove(&tree, 20);
        let reader = tree.clone();
        let reader = thread::spawn(move || floor(&reader, 0, 25));
        // There is always one at or below 25.
        insert(&tree, 0, 22);
        remove(&tree, 10);
        let found = reader.join().unwrap();
        assert!(matches!(found, Ok(Some(10 | 22)) | Err(Contended)));
        clear(&tree);
        vec![found]
    });
    assert!(seen.contains("[Ok(Some(10))]") && seen.contains("[Ok(Some(22))]"));
}
