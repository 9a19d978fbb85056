//! Several readers through one mapping, little memory, and any mixture.

use crate::readahead_model::{Met, Model, Reader, Reclaim, Rng};
use proptest::prelude::*;
use softfault_engine::page::Advice;
use softfault_engine::readahead::{Limits, Mapped, ReadAhead, Touch};

const FILE: u64 = 1 << 20;

/// Lets `readers` go on in random order, with `random` of 100 touches
/// anywhere; returns misses of readers after `warm` touches in all.
fn mix(model: &mut Model, readers: &mut [Reader], random: u64, touches: u64, warm: u64) -> u64 {
    let file_pages = model.limits.file_pages;
    let mut rng = Rng(touches);
    let mut late = 0;
    for i in 0..touches {
        if rng.below(100) < random {
            model.touch(rng.below(file_pages));
            continue;
        }
        let reader = rng.below(readers.len() as u64) as usize;
        let met = model.touch(readers[reader].next(file_pages));
        late += u64::from(met == Met::Miss && i >= warm);
    }
    late
}

fn readers(strides: &[i64]) -> Vec<Reader> {
    let mut rng = Rng(strides.len() as u64);
    strides
        .iter()
        .map(|&stride| Reader {
            page: rng.below(FILE),
            stride,
        })
        .collect()
}

#[test]
fn sixteen_runs_at_once() {
    for stride in [1, -1] {
        let mut model = Model::new(FILE);
        let mut readers = readers(&[stride; 16]);
        let late = mix(&mut model, &mut readers, 0, 60_000, 16 * 300);
        assert_eq!(late, 0);
        assert!(model.ratio() <= 1.25, "{}", model.ratio());
    }
}

#[test]
fn sixteen_runs_in_step() {
    // Each thread in its part of the file, one page each in turn: pages that
    // follow each other in time are a stride apart.
    let mut model = Model::new(FILE);
    for i in 0..4000 {
        for part in 0..16 {
            let met = model.touch(part * (FILE / 16) + i);
            assert!(i < 300 || met != Met::Miss, "{part}: {i}");
        }
    }
    assert!(model.ratio() <= 1.25, "{}", model.ratio());
    assert!(model.first_uses <= 16 * 4000 / 10, "{}", model.first_uses);
}

#[test]
fn eight_strides_at_once() {
    let mut model = Model::new(FILE);
    let mut readers = readers(&[1021, 2053, 4099, -1021, 17, -5, 3, 33]);
    let late = mix(&mut model, &mut readers, 0, 16_000, 2000);
    assert!(late <= 8 * 2, "{late}");
    // Two of them are dense enough that the region in front is read for them: by the loans that
    // need no use before, once.
    let most = model.distinct + model.distinct / 20 + 512;
    assert!(model.read <= most, "{} of {most}", model.read);
}

#[test]
fn eight_strides_of_one_length() {
    let mut model = Model::new(FILE);
    let mut readers = readers(&[1021; 8]);
    let late = mix(&mut model, &mut readers, 0, 16_000, 2000);
    assert!(late <= 8 * 2, "{late}");
    assert!(model.ratio() <= 1.05, "{}", model.ratio());
}

#[test]
fn several_threads_share_one_stride() {
    // They take the next index in turn, but touch up to eight late.
    let mut model = Model::new(FILE);
    let mut rng = Rng(3);
    let mut waiting: Vec<u64> = Vec::new();
    let mut late = 0;
    for i in 0..5000 {
        waiting.push(500_000 + i * 97);
        if waiting.len() == 8 {
            let page = waiting.swap_remove(rng.below(8) as usize);
            let met = model.touch(page % FILE);
            late += u64::from(met == Met::Miss && i >= 300);
        }
    }
    assert!(late <= 5000 / 100, "{late}");
    assert!(model.ratio() <= 1.05, "{}", model.ratio());
}

#[test]
fn runs_strides_and_random_together() {
    let mut model = Model::new(FILE);
    let mut readers = readers(&[1, 1, -1, 1021, -4099, 7, 1, 64]);
    let late = mix(&mut model, &mut readers, 50, 80_000, 20_000);
    assert!(late <= 60_000 / 200, "{late}");
    assert!(model.ratio() <= 1.1, "{}", model.ratio());
}

#[test]
fn a_run_through_pages_that_are_mapped_already() {
    let mut model = Model::new(FILE);
    let mut rng = Rng(5);
    for _ in 0..FILE / 10 {
        model.touch(rng.below(FILE));
    }
    let before = model.misses;
    let random = model.distinct;
    for page in 100_000..200_000 {
        model.touch(page);
    }
    let misses = model.misses - before;
    assert!(misses <= 100, "{misses}");
    assert!(model.read <= random + 110_000, "{}", model.read - random);
}

#[test]
fn two_runs_through_the_same_pages() {
    let mut model = Model::new(FILE);
    let mut late = 0;
    for i in 0..20_000 {
        late += u64::from(model.touch(i) == Met::Miss && i > 300);
        if i >= 5000 {
            late += u64::from(model.touch(i - 5000) == Met::Miss);
        }
    }
    assert_eq!(late, 0);
    assert!(model.ratio() <= 1.2, "{}", model.ratio());
}

#[test]
fn windows_shrink_to_the_memory_there_is() {
    // Sixteen runs whose windows would be eight times the memory.
    let mut model = Model::new(FILE).memory(4096);
    let mut readers = readers(&[1; 16]);
    mix(&mut model, &mut readers, 0, 300_000, 0);
    let ratio = model.ratio();
    assert!(ratio <= 1.3, "{ratio}");
    let misses = model.misses as f64 / (model.misses + model.first_uses) as f64;
    assert!(misses <= 0.2, "{misses}");
    assert!(model.policy.readahead_unused() < model.policy.readahead_used() / 3);
}

#[test]
fn a_window_larger_than_memory_is_not_lost_again_and_again() {
    for memory in [1024, 2048] {
        let mut model = Model::new(FILE).memory(memory);
        for page in 0..300_000 {
            model.touch(page);
        }
        assert!(model.ratio() <= 1.15, "{memory}: {}", model.ratio());
        assert!(model.misses <= 100, "{memory}: {}", model.misses);
        // With more memory, windows are large again.
        model.memory = FILE;
        for page in 300_000..500_000 {
            model.touch(page);
        }
        let before = model.windows;
        for page in 500_000..FILE {
            model.touch(page);
        }
        let windows = model.windows - before;
        assert!(windows <= (FILE - 500_000) / 1000, "{memory}: {windows}");
    }
}

#[test]
fn reclaim_that_drops_all_read_ahead_costs_little_more_than_none() {
    let mut model = Model::new(FILE).memory(4096).reclaim(Reclaim::UnusedFirst);
    for page in 0..300_000 {
        model.touch(page);
    }
    assert!(model.ratio() <= 1.02, "{}", model.ratio());
    assert!(model.misses <= 300_000 / 16 + 100, "{}", model.misses);
}

#[test]
fn sixteen_runs_share_a_small_budget() {
    let mut model = Model::new(FILE);
    model.limits.max_ahead = 16 * 64;
    let mut readers = readers(&[1; 16]);
    let late = mix(&mut model, &mut readers, 0, 100_000, 16 * 400);
    assert!(late <= 100_000 / 16 / 20, "{late}");
    assert!(model.ratio() <= 1.05, "{}", model.ratio());
}

#[test]
fn a_stream_that_was_there_first_leaves_budget_to_others() {
    let mut model = Model::new(FILE);
    model.limits.max_ahead = 16 * 64;
    let mut readers = readers(&[1; 16]);
    for _ in 0..50_000 {
        let page = readers[0].next(FILE);
        model.touch(page);
    }
    let before = model.misses;
    mix(&mut model, &mut readers, 0, 16 * 400, 0);
    let misses = model.misses - before;
    assert!(misses <= 16 * 20, "{misses}");
}

#[test]
fn no_budget_means_single_pages() {
    let mut model = Model::new(FILE);
    model.limits.max_ahead = 0;
    for page in 0..1000 {
        assert_eq!(model.touch(page), Met::Miss);
    }
    assert_eq!(model.read, 1000);
}

#[test]
fn after_random_a_run_is_found_again() {
    let half = 1 << 13;
    let mut model = Model::new(2 * half).memory(half / 2);
    let mut rng = Rng(11);
    for _ in 0..100_000 {
        model.touch(rng.below(half));
    }
    let before = model.misses;
    for page in half..2 * half {
        model.touch(page);
    }
    assert!(model.misses - before <= 40, "{}", model.misses - before);
    // Through pages of which every fourth is mapped it takes longer.
    for _ in 0..100_000 {
        model.touch(rng.below(2 * half));
    }
    let before = model.misses;
    for page in 0..2 * half {
        model.touch(page);
    }
    assert!(model.misses - before <= 60, "{}", model.misses - before);
}

#[test]
fn counters_tell_used_from_read() {
    let mut model = Model::new(FILE);
    for page in 0..10_000 {
        model.touch(page);
    }
    let policy = &model.policy;
    assert_eq!(
        policy.readahead_pages(),
        policy.readahead_used() + u64::from(policy.outstanding()) + policy.readahead_unused()
    );
    assert!(policy.readahead_used() > 9800);
}

#[derive(Debug, Clone)]
enum Step {
    Reader(usize),
    Random(u64),
    Advice(u8),
    MaxAhead(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (0usize..6).prop_map(Step::Reader),
        6 => any::<u64>().prop_map(Step::Random),
        1 => (0u8..3).prop_map(Step::Advice),
        1 => (0u32..5000).prop_map(Step::MaxAhead),
    ];
    prop::collection::vec(step, 1..1500)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The model itself checks each plan: inside the file, the touched page
    /// in it, no more outstanding than allowed.
    #[test]
    fn any_mixture_keeps_the_rules(
        steps in steps(),
        file_pages in prop_oneof![1u64..64, 64u64..5000, Just(1 << 18)],
        memory in 64u64..5000,
        strides in prop::array::uniform6(prop_oneof![-3i64..4, -70i64..70, -5000i64..5000]),
        max_window in 0u32..4096,
        queue_depth in 0u32..64,
    ) {
        let mut model = Model::new(file_pages).memory(memory);
        model.limits.max_window = max_window;
        model.limits.queue_depth = queue_depth;
        let mut readers = strides.map(|stride| Reader { page: stride.unsigned_abs() % file_pages, stride });
        for step in steps {
            match step {
                Step::Reader(i) => { let page = readers[i].next(file_pages); model.touch(page); }
                Step::Random(page) => { model.touch(page % file_pages); }
                Step::Advice(i) => model.advice = [Advice::Normal, Advice::Random, Advice::Sequential][usize::from(i)],
                Step::MaxAhead(pages) => model.limits.max_ahead = pages,
            }
        }
    }

    /// Any answers of a caller, a file whose size changes, and pages near the
    /// largest file.
    #[test]
    fn any_caller_is_survived(
        touches in prop::collection::vec((any::<u64>(), 1u64..1 << 52, 0u64..3, any::<bool>(), any::<u16>()), 1..300),
        near in prop::collection::vec(0u64..40, 300),
    ) {
        let mut policy = ReadAhead::new(5000);
        for (i, (at, file_pages, size, miss, told)) in touches.into_iter().enumerate() {
            let file_pages = match size { 0 => 1 << 52, 1 => 5000, _ => file_pages };
            let page = if at % 3 == 0 { at % file_pages } else { near[i % near.len()] % file_pages };
            let limits = Limits { max_window: u32::MAX, max_ahead: u32::MAX, max_sure: u32::MAX, memory: u64::MAX, file_pages, queue_depth: u32::MAX };
            let folio = page - page % 16..page - page % 16 + 16;
            let touch = if miss { Touch::Miss } else { Touch::FirstUse };
            let plan = policy.touch(page, folio, touch, Mapped::default(), Advice::Normal, &limits);
            prop_assert!(plan.demand.contains(&page));
            policy.submitted(&plan.ahead, u32::from(told), None);
            policy.unused(u32::from(told / 3));
        }
    }
}

/// Areas that begin anywhere and are touched as a whole are read as a whole, each. That this is over shows late; what it
/// costs is bounded.
#[test]
fn whole_areas_and_then_single_pages_cost_some_areas() {
    const FILE: u64 = 1 << 22;
    const AREA: u64 = 512;
    let mut model = Model::new(FILE);
    let mut rng = Rng(5);
    for area in 0..60 {
        // Far from each other, in no order.
        let first = (area * 2741 + 1) % (FILE / AREA / 8) * 8 * AREA;
        let mut order: Vec<u64> = (first..first + AREA).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        for page in order {
            model.touch(page);
        }
    }
    let before = model.read;
    assert!(before <= 66 * AREA, "{before} pages");
    for _ in 0..400 {
        model.touch(rng.below(FILE));
    }
    let read = model.read - before;
    assert!(read <= 400 + 30 * AREA, "{read} pages for 400 touches");
}
