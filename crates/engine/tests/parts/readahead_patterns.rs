//! One reader: the patterns of document 003's matrix, and others.

use crate::readahead_model::{Met, Model, Reader, Rng, limits};
use softfault_engine::page::Advice;
use softfault_engine::readahead::{Cursor, Mapped, Plan, ReadAhead, Reads, Touch};
use std::collections::BTreeSet;

/// Pages of 4 GiB, and one hundredth of them.
const FILE: u64 = 1 << 20;
const SPARSE: u64 = FILE / 100 + 1;

/// Touches until the reader stops waiting, and misses after that.
struct Waits {
    warm: u64,
    late_misses: u64,
    least_lead: u64,
    /// Times the reader passed the end of the file.
    wraps: u64,
}

fn read(model: &mut Model, reader: &mut Reader, touches: u64, warm: u64) -> Waits {
    let mut waits = Waits {
        warm: 0,
        late_misses: 0,
        least_lead: u64::MAX,
        wraps: 0,
    };
    let file_pages = model.limits.file_pages;
    for i in 0..touches {
        let page = reader.next(file_pages);
        waits.wraps += u64::from((reader.page > page) != (reader.stride > 0));
        match model.touch(page) {
            Met::Miss if i >= warm => waits.late_misses += 1,
            Met::Miss => waits.warm = i,
            Met::Ahead(lead) if i >= warm => waits.least_lead = waits.least_lead.min(lead),
            _ => {}
        }
    }
    waits
}

#[test]
fn random_reads_only_touched_pages() {
    for (file_pages, touches) in [(FILE, SPARSE), (FILE, 300_000), (1 << 24, 100_000)] {
        let mut model = Model::new(file_pages);
        let mut rng = Rng(7);
        for _ in 0..touches {
            model.touch(rng.below(file_pages));
        }
        assert!(model.ratio() <= 1.02, "{file_pages}: {}", model.ratio());
    }
}

#[test]
fn random_in_a_small_file_and_less_memory_reads_only_touched_pages() {
    for file_pages in [256, 1024, 4096, 65_536] {
        for seed in 0..3 {
            let mut model = Model::new(file_pages).memory(file_pages / 4);
            let mut rng = Rng(seed);
            for _ in 0..100_000 {
                model.touch(rng.below(file_pages));
            }
            let ratio = model.read as f64 / (model.misses + model.first_uses) as f64;
            assert!(ratio <= 1.02, "{file_pages}: {ratio}");
        }
    }
}

#[test]
fn random_in_a_small_file_before_anything_is_learned() {
    let mut read = 0;
    let mut touched = 0;
    for seed in 0..200 {
        let mut model = Model::new(4096);
        let mut rng = Rng(seed);
        for _ in 0..410 {
            model.touch(1 + rng.below(4095));
        }
        read += model.read;
        touched += model.distinct;
    }
    let ratio = read as f64 / touched as f64;
    assert!(ratio <= 1.02, "{ratio}");
}

#[test]
fn sequential_is_ahead_soon_and_overshoots_little() {
    for start in [0, 1, 777_777, FILE - 20_000] {
        let mut model = Model::new(FILE);
        let mut reader = Reader {
            page: start,
            stride: 1,
        };
        let waits = read(&mut model, &mut reader, SPARSE, 192);
        assert_eq!(waits.late_misses, 0, "from {start}: {}", waits.warm);
        assert!(model.misses <= 12, "from {start}: {}", model.misses);
        assert!(model.ratio() <= 1.2, "from {start}: {}", model.ratio());
        assert_eq!(model.replanned, 0);
        // Faults and windows, not only bytes, are few.
        assert!(
            model.first_uses <= SPARSE / 16 + SPARSE / 32,
            "{}",
            model.first_uses
        );
        assert!(model.windows <= 60, "{}", model.windows);
    }
}

#[test]
fn backward_is_as_good() {
    for start in [FILE - 1, 777_777, 20_000] {
        let mut model = Model::new(FILE);
        let mut reader = Reader {
            page: start,
            stride: -1,
        };
        let waits = read(&mut model, &mut reader, SPARSE, 192);
        assert_eq!(waits.late_misses, 0, "from {start}: {}", waits.warm);
        assert!(model.misses <= 12, "from {start}: {}", model.misses);
        assert!(model.ratio() <= 1.2, "from {start}: {}", model.ratio());
        assert_eq!(model.replanned, 0);
    }
}

#[test]
fn a_run_of_any_length_overshoots_by_a_quarter_at_most() {
    for start in [0, 5, 16, 1000] {
        let mut model = Model::new(FILE);
        for i in 0..8192 {
            model.touch(start + i);
            let (read, touched) = (model.read, i + 1);
            match touched {
                // A first page somewhere is one page; at the front a block.
                1 if start > 0 => assert_eq!(read, 1),
                1..8 => assert!(read <= 17, "{start}+{i}: {read}"),
                8..16 => assert!(read <= 33, "{start}+{i}: {read}"),
                16..64 => assert!(read <= 81, "{start}+{i}: {read}"),
                _ => assert!(read * 4 <= touched * 5 + 4, "{start}+{i}: {read}"),
            }
        }
    }
}

#[test]
fn the_whole_file_once() {
    let mut model = Model::new(FILE).memory(FILE / 4);
    for page in 0..FILE {
        model.touch(page);
    }
    assert_eq!(model.read, FILE);
    assert!(model.misses <= 12, "{}", model.misses);
    // The largest windows are reached.
    assert!(model.windows <= FILE / 1024 + 100, "{}", model.windows);
}

#[test]
fn a_second_pass_starts_with_large_windows() {
    let mut model = Model::new(1 << 16).memory(1 << 14);
    for _ in 0..3 {
        for page in 0..1 << 16 {
            model.touch(page);
        }
    }
    assert!(model.misses <= 12 + 2 * 2, "{}", model.misses);
    assert_eq!(model.read, 3 << 16);
}

#[test]
fn strides_of_any_length_are_ahead_soon() {
    let strides = [
        2, 3, 4, 5, 7, 8, 15, 16, 17, 32, 33, 64, 512, 1021, 2053, 4099, 65_537, 400_009, 524_287,
    ];
    for stride in strides.iter().flat_map(|&s| [s, -s]) {
        for start in [0, 12_345] {
            let mut model = Model::new(FILE);
            let mut reader = Reader {
                page: start,
                stride,
            };
            let waits = read(&mut model, &mut reader, SPARSE, 100);
            assert!(model.distinct == SPARSE || FILE.is_multiple_of(stride.unsigned_abs()));
            let name = format!("{stride} from {start}");
            // The first time over the end is a surprise, no other is.
            assert!(
                waits.late_misses <= waits.wraps.min(1),
                "{name}: {}",
                waits.late_misses
            );
            assert!(model.misses <= 8, "{name}: {} misses", model.misses);
            assert!(model.ratio() <= 1.01, "{name}: {}", model.ratio());
            // At page 0 a run was believed in, and its block read: the stride
            // may come by there.
            let block = if start == 0 { 15 } else { 0 };
            assert!(model.replanned <= block, "{name}");
        }
    }
}

#[test]
fn a_ramped_stride_keeps_the_device_busy() {
    for stride in [2, 16, 1021, 2053, 4099, -1021] {
        let mut model = Model::new(FILE);
        let mut reader = Reader {
            page: 500_000,
            stride,
        };
        // Less than a pass, so that no end of the file is met.
        let touches = 500_000 / stride.unsigned_abs().max(400);
        let waits = read(&mut model, &mut reader, touches, 100);
        assert_eq!(waits.late_misses, 0, "{stride}");
        // In parts of several pages, not one by one.
        assert!(model.windows <= touches / 8 + 50, "{stride}");
        assert!(waits.least_lead >= 23, "{stride}: {}", waits.least_lead);
    }
}

#[test]
fn a_reader_of_parts_of_each_block_is_not_a_run() {
    // It looks like a run at first, then reads one page of each block.
    for stride in [2, 4, 8, 16] {
        let mut model = Model::new(FILE);
        for page in 0..64 {
            model.touch(page);
        }
        let before = model.read;
        for i in 0..10_000 {
            model.touch(64 + i * stride);
        }
        let read = model.read - before;
        assert!(read <= 10_200, "{stride}: {read}");
    }
}

#[test]
fn short_runs_at_random_places_teach_caution() {
    for (length, most) in [
        (2, 1.2),
        (4, 1.3),
        (8, 1.5),
        (20, 1.6),
        (64, 1.4),
        (200, 1.25),
    ] {
        let mut model = Model::new(FILE);
        let mut rng = Rng(length);
        for _ in 0..40_000 / length {
            let start = rng.below(FILE - length);
            for page in start..start + length {
                model.touch(page);
            }
        }
        eprintln!(
            "{length}: {} {}",
            model.ratio(),
            model.misses as f64 / model.distinct as f64
        );
        assert!(model.ratio() <= most, "{length}: {}", model.ratio());
    }
}

#[test]
fn short_strides_at_random_places_teach_caution() {
    let mut model = Model::new(FILE);
    let mut rng = Rng(9);
    let mut sweep = |model: &mut Model, length: u64| {
        let (start, stride) = (rng.below(FILE), 100 + rng.below(5000));
        let before = model.misses;
        for i in 0..length {
            model.touch((start + i * stride) % FILE);
        }
        model.misses - before
    };
    for _ in 0..2000 {
        sweep(&mut model, 6);
    }
    assert!(model.ratio() <= 1.05, "{}", model.ratio());
    // Long ones are found all the same, and restore the trust.
    for i in 0..10 {
        let misses = sweep(&mut model, 200);
        let most = if i < 5 { 10 } else { 6 };
        assert!(misses <= most, "{i}: {misses}");
    }
}

#[test]
fn a_stride_does_not_lap_itself() {
    // Twenty pages in turn, each forgotten once it was used.
    let limits = limits(40);
    for stride in [2, 38] {
        let mut policy = ReadAhead::new(40);
        let mut ahead = [false; 40];
        let mut planned = 0;
        for i in 0..2000 {
            let page = (5 + i * stride) % 40;
            let touch = match std::mem::take(&mut ahead[page as usize]) {
                true => Touch::FirstUse,
                false => Touch::Miss,
            };
            assert!(touch == Touch::FirstUse || i < 20, "{i}");
            let plan = policy.touch(
                page,
                page..page + 1,
                touch,
                Mapped::default(),
                Advice::Normal,
                &limits,
            );
            if !plan.ahead.is_empty() {
                policy.submitted(&plan.ahead, plan.ahead.len() as u32, None);
                let mut cursor = Cursor::default();
                while let Some(pages) = plan.ahead.next(&mut cursor) {
                    for page in pages {
                        let was = std::mem::replace(&mut ahead[page as usize], true);
                        assert!(!was, "{i}: {page}");
                        planned += 1;
                    }
                }
            }
        }
        assert!(planned > 1900, "{planned}");
    }
}

#[test]
fn records_of_several_pages_at_a_stride() {
    for (record, stride) in [(2, 100), (4, 1000), (8, 1000)] {
        let mut model = Model::new(FILE);
        for i in 0..1000 {
            for page in 0..record {
                model.touch(5000 + i * stride + page);
            }
        }
        let misses = model.misses as f64 / model.distinct as f64;
        assert!(model.ratio() <= 1.25, "{record}: {}", model.ratio());
        assert!(misses <= 0.2, "{record}: {misses}");
    }
}

/// Gaps of the first half of a file that the second does not have: they are found, and given up.
#[test]
fn gaps_that_end() {
    let file = 1 << 18;
    let mut model = Model::new(file);
    let mut rng = Rng(3);
    for window in (0..file / 2).step_by(4096) {
        let pages = window..window + 4096;
        let mut pages: Vec<u64> = pages.filter(|page| page % 8 < 3).collect();
        for at in (1..pages.len()).rev() {
            pages.swap(at, rng.below(at as u64 + 1) as usize);
        }
        pages.into_iter().for_each(|page| {
            model.touch(page);
        });
    }
    let (misses, touched) = (model.misses, model.distinct);
    // Of the first window, which has 1,536 pages, a half has to be known.
    assert!(misses < 1200, "{misses} of {touched}");
    assert!(model.ratio() < 1.1, "{}", model.ratio());
    for page in file / 2..file {
        model.touch(page);
    }
    let misses = model.misses - misses;
    assert!(misses < 500, "{misses} in order");
    assert!(model.ratio() < 1.1, "{}", model.ratio());
}

#[test]
fn advice_is_obeyed() {
    let mut random = Model::new(FILE);
    random.advice = Advice::Random;
    for page in 0..5000 {
        random.touch(page);
    }
    assert_eq!((random.read, random.windows), (5000, 0));

    let mut sequential = Model::new(FILE);
    sequential.advice = Advice::Sequential;
    sequential.touch(1000);
    assert!(sequential.read > 1800, "{}", sequential.read);
    for page in 1001..100_000 {
        assert_ne!(sequential.touch(page), Met::Miss, "{page}");
    }
    assert!(sequential.windows <= 100_000 / 1000 + 2);
    assert_eq!(sequential.replanned, 0);
}

#[test]
fn small_files_are_read_to_their_end() {
    for file_pages in 1..200 {
        let mut model = Model::new(file_pages);
        for page in 0..file_pages {
            model.touch(page);
        }
        assert_eq!(model.read, file_pages);
        let mut model = Model::new(file_pages);
        for page in (0..file_pages).rev() {
            model.touch(page);
        }
        assert_eq!(model.read, file_pages);
    }
}

/// Half of the pages that the history tells apart: the distance is the same in both directions.
#[test]
fn a_stride_of_eight_tebibytes_has_a_direction() {
    const FILE: u64 = 1 << 34;
    let limits = limits(FILE);
    let mut policy = ReadAhead::new(FILE);
    let mut touch = |page: u64| {
        let (pages, none) = (page..page + 1, Mapped::default());
        let plan = policy.touch(page, pages, Touch::Miss, none, Advice::Normal, &limits);
        if !plan.ahead.is_empty() {
            policy.submitted(&plan.ahead, plan.ahead.len() as u32, None);
        }
        plan
    };
    for step in 0..7 {
        assert_eq!(touch(1000 + (step << 31)).demand.start, 1000 + (step << 31));
    }
    // Streams are asked whether it is one of their late touches.
    assert!(touch(777_777).ahead.is_empty());
}

/// The pages of a plan.
fn planned(ahead: &Reads) -> BTreeSet<u64> {
    let mut cursor = Cursor::default();
    core::iter::from_fn(|| ahead.next(&mut cursor))
        .flatten()
        .collect()
}

/// A policy whose plans are told of late, when another thread has touched a page far away.
struct Late(ReadAhead, Rng);

impl Late {
    const FILE: u64 = 1 << 20;

    fn touch(&mut self, page: u64, touch: Touch) -> Plan {
        let (pages, none) = (page..page + 1, Mapped::default());
        let limits = limits(Self::FILE);
        self.0
            .touch(page, pages, touch, none, Advice::Normal, &limits)
    }

    /// The other thread's touch, of which nothing is planned.
    fn other(&mut self) {
        let anywhere = Self::FILE / 2 + self.1.below(Self::FILE / 2);
        let plan = self.touch(anywhere, Touch::Miss);
        assert!(plan.ahead.is_empty(), "{plan:?}");
    }
}

#[test]
fn a_run_whose_plan_is_withdrawn_late_plans_it_again() {
    let mut late = Late(ReadAhead::new(Late::FILE), Rng(3));
    let mut page = 1000;
    let first = loop {
        let plan = late.touch(page, Touch::Miss);
        late.other();
        page += 1;
        if !plan.ahead.is_empty() {
            late.0.withdrawn(&plan.ahead);
            break planned(&plan.ahead);
        }
        assert!(page < 1100, "nothing is planned");
    };
    let again = late.touch(page, Touch::Miss);
    let again = planned(&again.ahead);
    assert!(!again.is_disjoint(&first), "{first:?}, then {again:?}");
}
