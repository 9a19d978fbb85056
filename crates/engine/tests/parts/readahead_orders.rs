//! Orders that are neither runs nor strides, and their costs: the table of `docs/read-ahead.md`.
//!
//! The oracle that they are compared with knows the future: it reads the touched pages, once, and waits for the
//! first page alone.

use crate::readahead_model::{Met, Model, Rng};
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str = "<!-- The rows below are generated: just read-ahead-table -->\n";
const END: &str = "<!-- Until here. -->\n";
/// Set to write the table instead of comparing it.
const WRITE: &str = "SOFTFAULT_WRITE_TABLE";
/// Families that a seed draws.
const DRAWN: u64 = 24;

const FILE: u64 = 1 << 18;

fn shuffle(pages: &mut [u64], rng: &mut Rng) {
    for at in (1..pages.len()).rev() {
        pages.swap(at, rng.below(at as u64 + 1) as usize);
    }
}

/// All pages of the file, in groups, each in the order that `permute` makes of it.
fn groups(size: u64, mut permute: impl FnMut(&mut Vec<u64>)) -> Vec<u64> {
    let mut all = Vec::new();
    for start in (0..FILE).step_by(size as usize) {
        let mut group: Vec<u64> = (start..(start + size).min(FILE)).collect();
        permute(&mut group);
        all.extend(group);
    }
    all
}

fn order(of: &'static [u64]) -> impl FnMut(&mut Vec<u64>) {
    move |group| {
        let start = group[0];
        group.clear();
        group.extend(of.iter().map(|at| start + at));
    }
}

fn orders() -> Vec<(String, Vec<u64>)> {
    let mut rng = Rng(1);
    let mut all = vec![
        ("0123".to_owned(), groups(4, |_| {})),
        ("0213".to_owned(), groups(4, order(&[0, 2, 1, 3]))),
        ("1032".to_owned(), groups(4, order(&[1, 0, 3, 2]))),
        ("3210".to_owned(), groups(4, order(&[3, 2, 1, 0]))),
        (
            "04152637".to_owned(),
            groups(8, order(&[0, 4, 1, 5, 2, 6, 3, 7])),
        ),
    ];
    for size in [4, 8, 16, 32, 64, 256, 1024, 4096, 16384] {
        all.push((
            format!("shuffle {size}"),
            groups(size, |group| shuffle(group, &mut rng)),
        ));
        all.push((
            format!("reverse {size}"),
            groups(size, |group| group.reverse()),
        ));
        let mut blocks = groups(size, |_| {});
        let mut starts: Vec<u64> = (0..FILE / size).collect();
        starts.reverse();
        blocks = starts
            .iter()
            .flat_map(|&at| blocks[(at * size) as usize..((at + 1) * size) as usize].to_vec())
            .collect();
        all.push((format!("blocks backwards {size}"), blocks));
        let mut blocks = groups(size, |_| {});
        let mut starts: Vec<u64> = (0..FILE / size).collect();
        shuffle(&mut starts, &mut rng);
        blocks = starts
            .iter()
            .flat_map(|&at| blocks[(at * size) as usize..((at + 1) * size) as usize].to_vec())
            .collect();
        all.push((format!("blocks shuffled {size}"), blocks));
    }
    let n = FILE;
    all.push((
        "zigzag ends".into(),
        (0..n)
            .map(|i| if i % 2 == 0 { i / 2 } else { n - 1 - i / 2 })
            .collect(),
    ));
    for streams in [4, 16] {
        for size in [4, 16, 64, 256] {
            let parts: Vec<Vec<u64>> = {
                let each = groups(size, |group| shuffle(group, &mut rng));
                each.chunks((FILE / streams) as usize)
                    .map(<[u64]>::to_vec)
                    .collect()
            };
            let mixed = (0..parts[0].len())
                .flat_map(|at| parts.iter().map(move |part| part[at]))
                .collect();
            all.push((format!("{streams} streams of shuffle {size}"), mixed));
        }
    }
    for (take, of) in [
        (1, 2),
        (3, 8),
        (6, 8),
        (7, 8),
        (24, 32),
        (3, 100),
        (40, 100),
    ] {
        let sparse: Vec<u64> = (0..FILE).filter(|page| page % of < take).collect();
        all.push((format!("gaps {take} of {of}"), sparse.clone()));
        for group in [8, 64] {
            let mut shuffled = sparse.clone();
            shuffled
                .chunks_mut(group)
                .for_each(|group| shuffle(group, &mut rng));
            all.push((format!("gaps {take} of {of}, shuffle {group}"), shuffled));
        }
    }
    for length in [2, 4, 8, 16, 32, 64, 256] {
        let mut pages = Vec::new();
        for _ in 0..FILE / length / 16 {
            let start = rng.below(FILE - length);
            pages.extend(start..start + length);
        }
        all.push((format!("runs of {length} anywhere"), pages));
        let mut pages = Vec::new();
        for _ in 0..FILE / length / 16 {
            let start = rng.below(FILE / length) * length;
            let mut run: Vec<u64> = (start..start + length).collect();
            shuffle(&mut run, &mut rng);
            pages.extend(run);
        }
        all.push((format!("shuffles of {length} anywhere"), pages));
    }
    all.push((
        "random".into(),
        (0..FILE / 8).map(|_| rng.below(FILE)).collect(),
    ));
    let mut whole: Vec<u64> = (0..FILE).collect();
    shuffle(&mut whole, &mut rng);
    all.push(("shuffle all".into(), whole));
    all.extend((1..=DRAWN).map(drawn));
    all
}

/// A family of this number: gaps, groups and how they are walked, direction, streams.
fn drawn(number: u64) -> (String, Vec<u64>) {
    let mut rng = Rng(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut name = format!("drawn {number}:");
    let (mut take, mut of) = (1, 1);
    if rng.below(3) == 0 {
        of = 2 + rng.below(99);
        take = 1 + rng.below(of - 1);
        let _ = write!(name, " gaps {take} of {of}");
    }
    let mut order: Vec<u64> = (0..FILE).filter(|page| page % of < take).collect();
    let size = 2_usize << rng.below(12);
    match rng.below(5) {
        0 => {}
        1 => {
            let _ = write!(name, " reverse {size}");
            order.chunks_mut(size).for_each(<[u64]>::reverse);
        }
        2 => {
            let size = size.min(256);
            let _ = write!(name, " blocks shuffled {size}");
            let mut starts: Vec<u64> = (0..order.len().div_ceil(size) as u64).collect();
            shuffle(&mut starts, &mut rng);
            let blocks: Vec<&[u64]> = order.chunks(size).collect();
            order = starts
                .iter()
                .flat_map(|&at| blocks[at as usize].to_vec())
                .collect();
        }
        _ => {
            let _ = write!(name, " shuffle {size}");
            (order.chunks_mut(size)).for_each(|group| shuffle(group, &mut rng));
        }
    }
    if rng.below(4) == 0 {
        name += " backwards";
        order.reverse();
    }
    let streams = [1, 1, 1, 2, 4, 16][rng.below(6) as usize];
    if streams > 1 {
        let _ = write!(name, " in {streams} streams");
        let parts: Vec<&[u64]> = order.chunks(order.len().div_ceil(streams)).collect();
        let turn = |at: usize| parts.iter().filter_map(move |part| part.get(at).copied());
        order = (0..parts[0].len()).flat_map(turn).collect();
    }
    (name, order)
}

/// The limits of the cost of a family: pages read by page touched, waits by touch.
struct Most {
    read: f64,
    waits: f64,
}

fn most(name: &str) -> Most {
    let most = |read, waits| Most { read, waits };
    match name {
        // Sixteen windows that are larger than memory together.
        name if name.starts_with("drawn 8:") => most(1.01, 1.0),
        name if name.starts_with("drawn") && name.contains("gaps") => most(1.25, 0.05),
        name if name.starts_with("drawn") => most(1.15, 0.05),
        // Nothing can be known of these.
        "random" | "shuffle all" => most(1.01, 1.0),
        // The first window is random until half of it is known; in memory are two of them.
        "shuffle 4096" => most(1.01, 0.02),
        "shuffle 16384" => most(1.01, 0.2),
        // One wait a record, at least.
        "runs of 2 anywhere" | "shuffles of 2 anywhere" | "shuffles of 4 anywhere" => {
            most(1.1, 1.0)
        }
        "runs of 4 anywhere" | "blocks shuffled 4" => most(1.1, 0.35),
        name if name.contains("anywhere") || name.starts_with("blocks shuffled") => most(1.25, 0.2),
        name if name.starts_with("gaps") => most(1.1, 0.02),
        name if name.contains("streams") => most(1.05, 0.02),
        _ => most(1.01, 0.005),
    }
}

/// The file, a quarter of it in memory.
fn budgeted() -> Model {
    Model::new(FILE).memory(FILE / 4)
}

/// A touch, with the limits that the engine has under such a budget: half of the rest is for others.
fn touch(model: &mut Model, page: u64) {
    let outstanding = model.policy.outstanding();
    let most = |pages: u32| outstanding + pages.saturating_sub(outstanding) / 2;
    model.limits.max_ahead = most(12288);
    model.limits.max_sure = most(36864);
    let _: Met = model.touch(page);
}

/// Pages read by page touched, waits and faults by touch.
fn cost(order: &[u64]) -> (f64, f64, f64) {
    let mut model = budgeted();
    for &page in order {
        touch(&mut model, page);
    }
    let of = |count: u64| count as f64 / order.len() as f64;
    let faults = of(model.misses + model.first_uses);
    (model.ratio(), of(model.misses), faults)
}

#[test]
fn orders_are_read_once_and_ahead() {
    let orders = orders();
    let costs: Vec<_> = std::thread::scope(|scope| {
        let parts = orders.chunks(orders.len().div_ceil(2));
        let threads: Vec<_> = parts
            .map(|part| {
                let cost = |(_, order): &(String, Vec<u64>)| cost(order);
                scope.spawn(move || part.iter().map(cost).collect::<Vec<_>>())
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        threads.into_iter().flat_map(join).collect()
    });
    let mut table = String::from("| order | read | waits | faults |\n|---|---|---|---|\n");
    let mut over = Vec::new();
    for ((name, _), (read, waits, faults)) in orders.iter().zip(costs) {
        let row = format!("| {name} | {read:.3} | {waits:.4} | {faults:.3} |\n");
        let most = most(name);
        if read > most.read || waits > most.waits {
            over.push(row.clone());
        }
        table += &row;
    }
    assert!(over.is_empty(), "more than a family may cost: {over:#?}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/read-ahead.md");
    let text = std::fs::read_to_string(&path).expect("docs/read-ahead.md");
    let (before, rest) = text.split_once(BEGIN).expect("where the table begins");
    let (found, after) = rest.split_once(END).expect("where the table ends");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, [before, BEGIN, &table, END, after].concat()).expect("written");
        return;
    }
    assert_eq!(found, table, "`just read-ahead-table` writes it");
}

/// Touches that waited in the first quarter of an order, and in the rest of it.
fn waits(order: &[u64]) -> (u64, u64) {
    let mut model = budgeted();
    let (start, rest) = order.split_at(order.len() / 4);
    start.iter().for_each(|&page| touch(&mut model, page));
    let learning = model.misses;
    rest.iter().for_each(|&page| touch(&mut model, page));
    (learning, model.misses - learning)
}

/// Both areas of a window are open when the next one begins: none beside them is used up. And a reader that touches two of
/// 512 areas only is believed before a half of them is touched.
#[test]
fn windows_larger_than_an_area_are_read_before_their_turn() {
    let mut rng = Rng(47);
    for (size, most) in [(1024, 300), (2048, 600)] {
        let order = groups(size, |group| shuffle(group, &mut rng));
        let (learning, later) = waits(&order);
        println!("windows of {size} pages: {learning} and {later} waits");
        assert!(
            learning <= most,
            "{learning} waits by the first windows of {size} pages"
        );
        assert!(later <= 100, "{later} waits by windows of {size} pages");
    }
}

/// The blocks of an area that are still ahead look like gaps between those that are used.
#[test]
fn blocks_that_wait_are_no_gaps() {
    let mut rng = Rng(48);
    // Chunks of 128 pages: those with an even number first.
    let order = groups(512, |group| {
        let (mut even, mut odd): (Vec<u64>, Vec<u64>) =
            (group.iter()).partition(|&&page| page / 128 % 2 == 0);
        shuffle(&mut even, &mut rng);
        shuffle(&mut odd, &mut rng);
        group.clear();
        group.extend(even.into_iter().chain(odd));
    });
    let (_, later) = waits(&order);
    assert!(later <= 8, "{later} waits");
}
