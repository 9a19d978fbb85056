//! A vector index of usearch: made, or searched where it lies, by many threads.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::exit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use usearch::{Index, IndexOptions, MetricKind, ScalarKind};

const DIMENSIONS: usize = 256;
/// A vector, its neighbours and its key.
const BYTES_OF_ONE: usize = DIMENSIONS * 4 + 85;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().expect("a number");
    match args[..] {
        ["make", path, mib] => make(path, number(mib) << 20),
        ["search", path, queries, threads, seconds] => {
            let until = Duration::from_secs(number(seconds) as u64);
            search(path, number(queries), number(threads), until);
        }
        _ => {
            eprintln!("vectors make PATH MIB | search PATH QUERIES THREADS SECONDS");
            exit(2);
        }
    }
}

/// Ready for so many threads.
fn index(threads: usize, vectors: usize) -> Index {
    let options = IndexOptions {
        dimensions: DIMENSIONS,
        metric: MetricKind::Cos,
        quantization: ScalarKind::F32,
        connectivity: 8,
        expansion_add: 16,
        expansion_search: 64,
        multi: false,
    };
    let index = Index::new(&options).expect("an index");
    let reserved = index.reserve_capacity_and_threads(vectors, threads);
    reserved.expect("memory for the index");
    index
}

/// A vector that its number draws, by splitmix64.
fn vector(number: u64) -> Vec<f32> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let next = |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 40) as f32 / (1 << 24) as f32
    };
    (0..DIMENSIONS).map(next).collect()
}

fn make(path: &str, bytes: usize) {
    let vectors = bytes / BYTES_OF_ONE;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let index = index(threads, vectors);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Relaxed)
                    && number < vectors
                {
                    index
                        .add(number as u64, &vector(number as u64))
                        .expect("a vector more");
                }
            });
        }
    });
    index.save(path).expect("the index saved");
}

/// The results of the threads.
struct Found {
    keys: Vec<Option<Vec<u64>>>,
    took: Vec<Duration>,
    first_thousand: Option<Duration>,
}

fn search(path: &str, queries: usize, threads: usize, until: Duration) {
    let index = index(threads, 1);
    index.view(path).expect("an index to be viewed");
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Found {
        keys: vec![None; queries],
        took: Vec::new(),
        first_thousand: None,
    });
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let query = next.fetch_add(1, Relaxed)
                    && query < queries
                {
                    let wanted = vector(1 << 40 | query as u64);
                    let start = Instant::now();
                    let matches = index.search(&wanted, 10).expect("a search");
                    let took = start.elapsed();
                    let mut found = found.lock().expect("no thread panics with it");
                    found.keys[query] = Some(matches.keys);
                    found.took.push(took);
                    if found.took.len() == 1000 {
                        found.first_thousand = Some(begun.elapsed());
                    }
                }
            });
        }
        // Searches that are under way may take as long as they like: the process ends without them.
        while begun.elapsed() < until && found.lock().expect("as above").took.len() < queries {
            thread::sleep(Duration::from_millis(20));
        }
        if said(&mut found.lock().expect("as above"), begun.elapsed()) < queries {
            println!("given up");
            exit(0);
        }
    });
}

/// Prints it; how many searches were answered.
fn said(found: &mut Found, past: Duration) -> usize {
    let answered = found.took.len();
    found.took.sort();
    let slowest = found.took.get(answered * 999 / 1000);
    let number = |time: Option<f64>| time.map_or("-".into(), |time| format!("{time:.2}"));
    eprintln!(
        "first 1,000 {} s, {:.1} a second, p99.9 {} ms",
        number(found.first_thousand.map(|time| time.as_secs_f64())),
        answered as f64 / past.as_secs_f64(),
        number(slowest.map(|time| time.as_secs_f64() * 1e3)),
    );
    if found.keys.iter().all(Option::is_some) {
        let mut hash = DefaultHasher::new();
        found.keys.hash(&mut hash);
        println!("{}", hash.finish());
    }
    answered
}
