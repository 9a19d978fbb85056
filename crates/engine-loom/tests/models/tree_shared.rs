//! Verbs that change one VMA tree beside one another (`verbs=shared`), and lookups beside them. Nodes have two or four entries
//! here, so that a leaf splits or goes with one operation.

use std::sync::Arc;

use crate::model::spawn;
use crate::model::{answers, apart, explore};
use loom::thread::JoinHandle;
use softfault_engine_loom::mm::tree::{Contended, LeafLockError, Node, Parts, Spare, Tree, Walk};
use softfault_engine_loom::slab::Slab;

/// A verb's insert, as `mm/shared.rs` does it.
fn insert<const F: usize>(tree: &Tree<F>, key: usize) {
    let mut spare = Spare::default();
    loop {
        let mut leaf = tree.lock_leaf(key, &mut Walk::default());
        match leaf.make_room(&spare) {
            Ok(()) => {
                leaf.insert(key, key as u32, &mut spare);
                return tree.give_back(&mut spare);
            }
            Err(LeafLockError::Nodes(count)) => {
                drop(leaf);
                tree.fill(&mut spare, count).unwrap();
            }
            Err(LeafLockError::Moved) => {}
            Err(LeafLockError::Alone) => unreachable!(),
        }
    }
}

/// A verb's remove; false if it takes `mmap_lock`.
fn remove<const F: usize>(tree: &Tree<F>, key: usize) -> bool {
    loop {
        let mut leaf = tree.lock_leaf(key, &mut Walk::default());
        assert_eq!(leaf.floor(key).map(|entry| entry.start), Some(key));
        match leaf.make_way() {
            Ok(()) => {
                leaf.remove(key);
                return true;
            }
            Err(LeafLockError::Moved) => {}
            Err(_) => return false,
        }
    }
}

/// The answer of a lookup: the start it found.
fn floor<const F: usize>(tree: &Tree<F>, key: usize) -> Result<Option<usize>, Contended> {
    let found = tree.floor(key, &mut Walk::default())?;
    Ok(found.map(|found| {
        assert_eq!(found.vma, found.start as u32);
        found.start
    }))
}

/// A tree with these keys, which fill its leaves from below.
fn tree<const F: usize>(nodes: u32, keys: &[usize]) -> Arc<Tree<F>> {
    tree_of(Parts::ONE, nodes, keys)
}

/// The same, of several parts.
fn tree_of<const F: usize>(parts: Parts, nodes: u32, keys: &[usize]) -> Arc<Tree<F>> {
    let slab: sync::Arc<Slab<Node<F>>> = sync::Arc::new(Slab::new(nodes));
    let tree = Tree::shared(slab, parts).unwrap();
    for &key in keys {
        tree.insert(key, key as u32, &mut Walk::default()).unwrap();
    }
    Arc::new(tree)
}

/// Takes keys out before the model begins.
fn without<const F: usize>(tree: Arc<Tree<F>>, keys: &[usize]) -> Arc<Tree<F>> {
    for &key in keys {
        tree.remove(key, &mut Walk::default());
    }
    tree
}

fn beside<T: 'static, const F: usize>(
    tree: &Arc<Tree<F>>,
    work: impl FnOnce(&Tree<F>) -> T + 'static,
) -> JoinHandle<T> {
    let tree = tree.clone();
    spawn(move || work(&tree))
}

/// The tree is whole, with these keys; and is emptied.
fn finish<const F: usize>(tree: &Tree<F>, keys: &[usize]) {
    tree.check();
    let mut starts = Vec::new();
    tree.for_each(|entry| starts.push(entry.start));
    assert_eq!(starts, keys);
    for start in starts {
        tree.remove(start, &mut Walk::default());
    }
}

/// Ten, twenty, thirty and so on.
fn tens(count: usize) -> Vec<usize> {
    (1..=count).map(|key| key * 10).collect()
}

/// These and more, in order.
fn with(keys: &[usize], more: &[usize]) -> Vec<usize> {
    let mut all = [keys, more].concat();
    all.sort_unstable();
    all
}

/// The only leaf is full, and both verbs want to be in it.
#[test]
fn two_inserts_into_a_root_that_is_full() {
    explore(Some(2), || {
        let tree = tree::<2>(6, &[10, 20]);
        let other = beside(&tree, |tree| insert(tree, 25));
        insert(&tree, 15);
        other.join().unwrap();
        finish(&tree, &[10, 15, 20, 25]);
    });
}

/// All nodes are full: the root moves its entries down, and its child splits.
#[test]
fn two_inserts_into_a_tree_that_is_full() {
    explore(Some(1), || {
        let tree = tree::<2>(12, &tens(4));
        let other = beside(&tree, |tree| insert(tree, 35));
        insert(&tree, 15);
        other.join().unwrap();
        finish(&tree, &with(&tens(4), &[15, 35]));
    });
}

/// A leaf goes from the root, which moves its entries down beside it.
#[test]
fn a_leaf_that_goes_while_its_parent_splits() {
    explore(Some(1), || {
        // The leaves are [10, 20, 30], [40] and [70].
        let tree = without(tree::<3>(8, &tens(7)), &[50, 60]);
        let other = beside(&tree, |tree| remove(tree, 40));
        insert(&tree, 15);
        let gone = other.join().unwrap();
        let left: &[usize] = if gone { &[] } else { &[40] };
        finish(&tree, &with(&[10, 15, 20, 30, 70], left));
    });
}

/// Both verbs find the leaf full; one splits it, and the other is in the half that is right for it.
#[test]
fn two_inserts_into_one_full_leaf() {
    explore(Some(1), || {
        let tree = tree::<4>(8, &tens(5));
        let other = beside(&tree, |tree| insert(tree, 35));
        insert(&tree, 15);
        other.join().unwrap();
        finish(&tree, &with(&tens(5), &[15, 35]));
    });
}

/// Two leaves of one parent split beside one another.
#[test]
fn two_leaves_split_under_one_parent() {
    explore(Some(1), || {
        let tree = tree::<4>(8, &tens(8));
        let other = beside(&tree, |tree| insert(tree, 65));
        insert(&tree, 15);
        other.join().unwrap();
        finish(&tree, &with(&tens(8), &[15, 65]));
    });
}

/// A leaf goes; the verb that waits for it goes on in the leaf that has its range now.
#[test]
fn an_insert_into_a_leaf_that_goes() {
    explore(Some(2), || {
        let tree = tree::<4>(8, &tens(9));
        let other = beside(&tree, |tree| insert(tree, 95));
        // With 95 there it does not go.
        assert!(remove(&tree, 90));
        other.join().unwrap();
        finish(&tree, &with(&tens(8), &[95]));
    });
}

/// The last VMAs of two leaves of three go: the root keeps one child.
#[test]
fn two_leaves_of_three_go() {
    explore(Some(2), || {
        let tree = without(tree::<4>(8, &tens(9)), &[60, 70, 80]);
        let other = beside(&tree, |tree| remove(tree, 50));
        assert!(remove(&tree, 90));
        assert!(other.join().unwrap());
        finish(&tree, &tens(4));
    });
}

/// Both leaves of a root would go: one of them stays. Taken out under `mmap_lock`, its VMA leaves an empty root.
#[test]
fn two_leaves_of_two_go() {
    explore(Some(2), || {
        let tree = without(tree::<2>(6, &tens(4)), &[20, 40]);
        let other = beside(&tree, |tree| remove(tree, 10));
        let own = remove(&tree, 30);
        assert!(own != other.join().unwrap());
        let last = if own { 10 } else { 30 };
        finish(&tree, &[last]);
        assert_eq!(tree.check().levels, 1);
        insert(&tree, 20);
        finish(&tree, &[20]);
    });
}

/// A VMA that moves to the new leaf is found all the time.
#[test]
fn a_lookup_beside_a_split() {
    apart(|| {
        let seen = answers(1, || {
            let tree = tree::<4>(8, &tens(5));
            let reader = beside(&tree, |tree| floor(tree, 45));
            insert(&tree, 15);
            let found = reader.join().unwrap();
            finish(&tree, &with(&tens(5), &[15]));
            found
        });
        assert_eq!(seen, [Ok(Some(40))]);
    });
}

/// The same where the root moves its entries down.
#[test]
fn a_lookup_beside_the_split_of_the_root() {
    apart(|| {
        let seen = answers(2, || {
            let tree = tree::<2>(6, &[10, 20]);
            let reader = beside(&tree, |tree| floor(tree, 25));
            insert(&tree, 15);
            let found = reader.join().unwrap();
            finish(&tree, &[10, 15, 20]);
            found
        });
        assert_eq!(seen, [Ok(Some(20))]);
    });
}

/// The floor is in the leaf before the one that goes.
#[test]
fn a_lookup_beside_a_leaf_that_goes() {
    apart(|| {
        let seen = answers(2, || {
            let tree = without(tree::<4>(8, &tens(9)), &[60, 70, 80]);
            let reader = beside(&tree, |tree| floor(tree, 55));
            assert!(remove(&tree, 50));
            let found = reader.join().unwrap();
            finish(&tree, &with(&tens(4), &[90]));
            found
        });
        assert!(seen.contains(&Ok(Some(40))) && seen.contains(&Ok(Some(50))));
        assert!(seen.len() == 2, "{seen:?}");
    });
}

/// Parts from 0, 16, 32 and 48 on.
const PARTS: Parts = Parts::new(16, 4, 3);

/// Verbs of two parts have no node in common, and a lookup goes over an empty part.
#[test]
fn a_lookup_over_parts_that_fill() {
    apart(|| {
        let mut seen = answers(2, || {
            let tree = tree_of::<2>(PARTS, 6, &[10]);
            let reader = beside(&tree, |tree| floor(tree, 50));
            let other = beside(&tree, |tree| insert(tree, 40));
            insert(&tree, 20);
            other.join().unwrap();
            let found = reader.join().unwrap();
            finish(&tree, &[10, 20, 40]);
            found
        });
        seen.sort_by_key(|found| found.unwrap());
        assert_eq!(seen, [10, 20, 40].map(|start| Ok(Some(start))));
    });
}

/// What is there all the time is found, over parts that others empty.
#[test]
fn a_lookup_over_a_part_that_empties() {
    apart(|| {
        let mut seen = answers(3, || {
            let tree = tree_of::<2>(PARTS, 6, &[10, 20, 40]);
            let reader = beside(&tree, |tree| {
                let above = tree.ceiling(12, &mut Walk::default()).unwrap();
                (above.unwrap().start, floor(tree, 35).unwrap().unwrap())
            });
            assert!(remove(&tree, 20));
            let found = reader.join().unwrap();
            finish(&tree, &[10, 40]);
            found
        });
        seen.sort_unstable();
        assert_eq!(seen, [(20, 10), (20, 20), (40, 10)]);
    });
}
