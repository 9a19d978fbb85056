//! Lookups in the VMA tree without a lock, against its one writer. Nodes have
//! two entries here, so that a few operations split, join and reuse
//! them.

use std::sync::Arc;

use crate::model::spawn;
use crate::model::{answers, apart};
use softfault_engine_loom::mm::tree::{Contended, Node, Tree, Walk};
use softfault_engine_loom::slab::Slab;

/// The answer of a lookup: the start it found.
type Answer = Result<Option<usize>, Contended>;

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
fn a_lookup_sees_entries_that_move_when_the_root_splits() {
    apart(|| {
        let seen = answers(2, || {
            let nodes = slab::<2>(4);
            let tree = tree(&nodes, 0, &[10, 20]);
            let reader = tree.clone();
            let reader = spawn(move || floor(&reader, 0, 25));
            insert(&tree, 0, 15);
            let last = reader.join().unwrap();
            // 20 is there all the time, and moves to another node.
            assert!(matches!(last, Ok(Some(20)) | Err(Contended)));
            clear(&tree);
            last
        });
        assert!(seen.contains(&Ok(Some(20))));
    });
}

#[test]
fn a_lookup_sees_entries_that_move_when_a_leaf_splits() {
    apart(|| {
        let seen = answers(1, || {
            let nodes = slab::<2>(8);
            // The leaves are [10, 20] and [30]; 20 will move to one of its own.
            let tree = tree(&nodes, 0, &[10, 20, 30]);
            let reader = tree.clone();
            let reader = spawn(move || floor(&reader, 0, 20));
            insert(&tree, 0, 15);
            let found = reader.join().unwrap();
            assert!(matches!(found, Ok(Some(20)) | Err(Contended)));
            clear(&tree);
            found
        });
        assert!(seen.contains(&Ok(Some(20))));
    });
}

#[test]
fn a_node_that_came_back_in_another_tree_is_not_believed() {
    apart(|| {
        let seen = answers(1, || {
            let nodes = slab::<2>(6);
            let one = tree(&nodes, 0, &[10, 20, 30]);
            let other = tree(&nodes, 1000, &[25, 28]);
            let reader = one.clone();
            let reader = spawn(move || floor(&reader, 0, 30));
            // The root is enough now: two leaves go, and come back at once.
            remove(&one, 30);
            insert(&other, 1000, 22);
            let found = reader.join().unwrap();
            assert!(matches!(found, Ok(Some(30 | 20)) | Err(Contended)));
            clear(&one);
            clear(&other);
            found
        });
        assert!(seen.contains(&Ok(Some(30))) && seen.contains(&Ok(Some(20))));
    });
}

#[test]
fn an_entry_of_an_earlier_leaf_is_still_the_floor() {
    apart(|| {
        let seen = answers(2, || {
            let nodes = slab::<2>(3);
            // The leaves are [5, 10] and [40]; the second begins at 30.
            let tree = tree(&nodes, 0, &[5, 10, 30, 40]);
            remove(&tree, 30);
            let reader = tree.clone();
            let reader = spawn(move || floor(&reader, 0, 35));
            // 10 is the floor of 35, and then 32. It is never 5.
            insert(&tree, 0, 32);
            remove(&tree, 10);
            let found = reader.join().unwrap();
            assert!(matches!(found, Ok(Some(10 | 32)) | Err(Contended)));
            clear(&tree);
            found
        });
        assert!(seen.contains(&Ok(Some(10))) && seen.contains(&Ok(Some(32))));
    });
}

#[test]
fn a_leaf_that_begins_lower_all_of_a_sudden_is_not_taken_for_the_one_before() {
    apart(|| {
        let seen = answers(1, || {
            let nodes = slab::<2>(16);
            // Four levels of pairs. The upper half of it becomes
            // [[[12]], [[14], [15, 16]]], in which [14] begins at 13.
            let keys: Vec<usize> = (1..=16).collect();
            let tree = tree(&nodes, 0, &keys);
            for key in [9, 10, 11, 13] {
                remove(&tree, key);
            }
            let reader = tree.clone();
            let reader = spawn(move || floor(&reader, 0, 13));
            // Takes [12] and its parent out: [14] itself stays as it is, and
            // begins at 9.
            remove(&tree, 12);
            let found = reader.join().unwrap();
            assert!(matches!(found, Ok(Some(12 | 8)) | Err(Contended)));
            clear(&tree);
            found
        });
        assert!(seen.contains(&Ok(Some(12))) && seen.contains(&Ok(Some(8))));
    });
}
