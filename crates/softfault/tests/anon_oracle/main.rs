//! Random operations on softfault's private memory and on the kernel's, in processes
//! that fork: both must show the model's bytes, and every touched page is
//! paid for; and the same where most of it is in a swap file.
//!
//! ```text
//!   SOFTFAULT_ORACLE_OPERATIONS=1_000_000   so many operations in `a_long_run`
//! ```
//!
//! | file | has |
//! |---|---|
//! | `world` | all spaces, each of which is a process, and which of them is asked |
//! | `process` | one of them, and how it forks |
//! | `wire` | requests and answers |
//! | `memory`, `softfault_side`, `kernel` | private memory of one process, on each side |
//! | `places` | where pages are, and touches |

#[path = "../child/mod.rs"]
mod child;
mod kernel;
mod memory;
mod places;
mod process;
mod softfault_side;
mod wire;
mod world;

use child::alone;
use kernel::Kernel;
use places::PAGE;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};
use softfault::{Builder, Compression, Engine, Swap};
use softfault_engine::policy::Policies;
use softfault_oracle::{COPIED_PAGES, Op, any_anon_op, any_swap_op, byte_at, play_anon};
use softfault_side::Softfault;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, LazyLock, RwLock};
use world::{Processes, View};

/// The file that private copies are made of: one, through a descriptor for each side.
fn copied_file() -> File {
    static FILE: LazyLock<File> = LazyLock::new(|| {
        let name = format!("copied-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let pages = (0..(COPIED_PAGES * PAGE) as u64).map(|at| byte_at(0, at));
        std::fs::write(&path, pages.collect::<Vec<u8>>()).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    });
    FILE.try_clone().unwrap()
}

/// Seeds that failed once are kept beside the sources, and tried first.
fn config(cases: u32) -> ProptestConfig {
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/anon_oracle.txt"
    );
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        max_shrink_iters: 3000,
        ..ProptestConfig::default()
    }
}

#[test]
fn both_show_the_same() {
    alone("both_show_the_same", || {
        let mut runner = TestRunner::new(config(40));
        let list = proptest::collection::vec(any_anon_op(), 1..60);
        let played = runner.run(&list, |ops| {
            play(
                Engine::builder().allow_kernel_maps(false).memory(24 << 20),
                ops,
            );
            Ok(())
        });
        played.unwrap();
    });
}

#[test]
fn both_show_the_same_from_swap() {
    alone("both_show_the_same_from_swap", || {
        let mut runner = TestRunner::new(config(40));
        let memory = prop_oneof![Just(8usize << 20), Just(10 << 20)];
        let list = proptest::collection::vec(any_swap_op(false), 1..60);
        let played = runner.run(&(memory, list), |(memory, ops)| {
            play(swapping(memory, Compression::None), ops);
            Ok(())
        });
        played.unwrap();
    });
}

/// With more swap than a list ever has in use: inherited slots stay while children
/// live.
fn swapping(memory: usize, compression: Compression) -> Builder {
    let swap = Swap::in_dir(env!("CARGO_TARGET_TMPDIR")).bytes(512 << 20);
    let swap = swap.compression(compression);
    Engine::builder()
        .allow_kernel_maps(false)
        .memory(memory)
        .swap(swap)
}

fn play(engine: Builder, ops: Vec<Op>) {
    let engine = engine.build().unwrap();
    let softfault = Softfault::new(engine, copied_file());
    let processes = Processes::new(softfault, Kernel::new(copied_file()));
    let processes = Arc::new(RwLock::new(processes));
    let view = |side| View {
        processes: processes.clone(),
        side,
    };
    let first = Op::MapZeros {
        space: 0,
        pages: 300..1500,
    };
    let ops: Vec<_> = std::iter::once(first).chain(ops).collect();
    play_anon(&mut [&mut view(0), &mut view(1)], &ops);
    processes.write().unwrap().finish();
}

/// As many operations as the environment says, most pages in swap: shared out to
/// processes with seeds of their own, which wait for the disk at a time.
#[test]
fn a_long_run() {
    const MOST_PROCESSES: usize = 6;
    const LIST: usize = 400;
    let text = std::env::var("SOFTFAULT_ORACLE_OPERATIONS").unwrap_or("2_400".into());
    let operations: usize = text.replace('_', "").parse().unwrap();
    let lists = operations.div_ceil(LIST);
    let processes = lists.min(MOST_PROCESSES);
    if let Some(number) = child::scenario() {
        let number: usize = number.parse().unwrap();
        let share = (number..lists).step_by(processes).count();
        return long_run(number, share, LIST);
    }
    std::thread::scope(|scope| {
        for number in 0..processes {
            scope.spawn(move || child::succeeds("a_long_run", &number.to_string()));
        }
    });
    println!("{} operations", lists * LIST);
}

/// Of the processes, in turn.
const SETTINGS: [(Compression, &str); 6] = [
    (
        Compression::None,
        "lock=refcount+verbs=shared+retry=vma-lock+pin=yes",
    ),
    (Compression::Lz4, "lock=refcount+retry=vma-lock+pin=yes"),
    (Compression::None, "lock=biased+retry=vma-lock+pin=no"),
    (Compression::None, "lock=rwsem+retry=mmap-lock+pin=no"),
    (Compression::None, "lock=refcount+retry=held+pin=yes"),
    (
        Compression::Lz4,
        "lock=refcount+verbs=shared+retry=mmap-lock+pin=yes",
    ),
];

fn long_run(seed: usize, lists: usize, operations: usize) {
    let config = ProptestConfig {
        failure_persistence: None,
        ..config(lists as u32)
    };
    let mut bytes = [0; 32];
    bytes[..size_of::<usize>()].copy_from_slice(&seed.to_ne_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, random);
    let list = proptest::collection::vec(any_swap_op(false), operations);
    let (compression, policies) = SETTINGS[seed % SETTINGS.len()];
    let policies: Policies = policies.parse().unwrap();
    let played = runner.run(&list, |ops| {
        play(swapping(9 << 20, compression).policies(policies), ops);
        Ok(())
    });
    played.unwrap();
    println!("{} operations", lists * operations);
}
