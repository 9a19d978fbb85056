//! The kinds of locks: the first engine of a process chooses them for all.

mod child;
mod files;

use std::io::ErrorKind::InvalidInput;

use files::{check, made_file};
use softfault::policy::Policies;
use softfault::{Builder, Engine, Fallback};

const MIB: usize = 1 << 20;

fn builder(policies: &str) -> Builder {
    let policies: Policies = policies.parse().unwrap();
    Engine::builder()
        .allow_kernel_maps(false)
        .memory(8 * MIB)
        .policies(policies)
}

/// Threads map, read more than the budget and unmap.
fn use_it(engine: &Engine) {
    let file = made_file("vma-lock-kind", 12 * MIB);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (engine, file) = (engine, &file);
            scope.spawn(move || {
                for round in 0..3 {
                    // SAFETY: nobody writes to the file.
                    let map = unsafe { engine.map(file) }.unwrap();
                    for page in 0..map.len() / 4096 {
                        check(&map, page * 4096 + thread + round);
                    }
                }
            });
        }
    });
    assert!(engine.stats().faults > 0);
}

#[test]
fn the_first_engine_chooses_the_locks() {
    let kinds = [
        "lock=rwsem+mmap=steal",
        "lock=refcount+mmap=steal",
        "lock=biased+mmap=steal",
        "lock=refcount+mmap=phase-fair",
        "lock=refcount+mmap=linux",
        "lock=refcount+mmap=steal+reuse=rcu",
    ];
    let Some(first) = child::scenario() else {
        for kind in kinds {
            child::succeeds("the_first_engine_chooses_the_locks", kind);
        }
        return;
    };
    let engine = builder(&first).build().unwrap();
    use_it(&engine);
    for kind in kinds {
        let second = builder(kind).build();
        if kind == first {
            use_it(&second.unwrap());
            continue;
        }
        // A fallback is for calls that the machine does not allow.
        let fallback = builder(kind).fallback(Fallback::Kernel).build();
        for refused in [second, fallback] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), InvalidInput);
            assert_eq!(
                error.to_string(),
                format!(
                    "an earlier engine of this process has the locks `{first}`: all engines of a process need the same"
                )
            );
        }
    }
    // Verbs are shared with the count alone: elsewhere the policy changes nothing.
    let can_share = first.contains("lock=refcount") && !first.contains("reuse=rcu");
    let shared = builder(&format!("{first}+verbs=shared")).build();
    assert_eq!(shared.is_err(), can_share);
    drop(shared);
    // A refused engine has changed nothing.
    use_it(&engine);
    // The kind outlives its engines.
    drop(engine);
    let other = kinds.into_iter().find(|&kind| kind != first).unwrap();
    assert_eq!(builder(other).build().unwrap_err().kind(), InvalidInput);
}
