//! Orders that are neither runs nor strides.

use crate::readahead_model::{Met, Model, Rng};

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
        for size in [4, 64] {
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
    for length in [2, 4, 8, 16, 32, 64] {
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
    all
}

/// What a family may cost: pages read by page touched, waits by touch.
struct Most {
    read: f64,
    waits: f64,
}

fn most(name: &str) -> Most {
    let most = |read, waits| Most { read, waits };
    match name {
        // Nothing can be known of these.
        "random" | "shuffle all" => most(1.01, 1.0),
        // The first window is random until half of it is known; in memory are two of them.
        "shuffle 4096" => most(1.01, 0.05),
        "shuffle 16384" => most(1.01, 0.25),
        // One wait a record, at least.
        "runs of 2 anywhere" | "shuffles of 2 anywhere" | "shuffles of 4 anywhere" => {
            most(1.1, 1.0)
        }
        "runs of 4 anywhere" | "blocks shuffled 4" => most(1.1, 0.35),
        name if name.contains("anywhere") || name.starts_with("blocks shuffled") => {
            most(1.25, 0.25)
        }
        // A run is believed in at each record, and hides the gaps.
        "gaps 40 of 100" => most(1.15, 0.2),
        name if name.starts_with("gaps") => most(1.15, 0.15),
        name if name.contains("streams") => most(1.05, 0.06),
        _ => most(1.01, 0.02),
    }
}

#[test]
fn orders_are_read_once_and_ahead() {
    let mut table = String::new();
    for (name, order) in orders() {
        let mut model = Model::new(FILE).memory(FILE / 4);
        model.limits.max_ahead = 7168;
        for &page in &order {
            let _: Met = model.touch(page);
        }
        let of = |count: u64| count as f64 / order.len() as f64;
        let (read, waits) = (model.ratio(), of(model.misses));
        let faults = of(model.misses + model.first_uses);
        table += &format!("{name:32} {read:7.3} {waits:7.4} {faults:7.3}\n");
        let most = most(&name);
        assert!(read <= most.read && waits <= most.waits, "{table}");
    }
    println!(
        "{:32} {:>7} {:>7} {:>7}\n{table}",
        "", "read", "waits", "faults"
    );
}
