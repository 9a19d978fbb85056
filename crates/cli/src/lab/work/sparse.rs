//! Document 003's matrix: a small part of a large file is touched, in one of several orders. Threads, if
//! there are several, take the accesses in turn.

use super::super::fill::{mix, uniform};
use super::super::job::Order;
use super::super::reader::Buffer;
use super::{Bench, gang};

/// Touches `accesses` pages in `order`; the mapping is made before the clock starts.
pub fn run(bench: &Bench, order: Order, accesses: u64) -> Result<(), String> {
    let source = bench.source()?;
    let pages = source.pages();
    let seed = mix(bench.job.seed);
    gang::measure(bench, 1 << 20, None, |member| {
        let mut buffer = Buffer::default();
        let mut reader = source.reader(&mut buffer);
        for access in (member.number as u64..accesses).step_by(bench.job.threads) {
            if member.stopped() {
                break;
            }
            reader.touch(page_of(order, seed, access, pages))?;
            member.count(1);
        }
        Ok(())
    })
}

/// The page of access number `access`. Both factors of the product are below 2^32: no file has more
/// pages than `Plan` allows.
fn page_of(order: Order, seed: u64, access: u64, pages: u64) -> u64 {
    match order {
        Order::Random => uniform(mix(seed ^ access), pages),
        Order::Stride(stride) => (access % pages) * (stride % pages) % pages,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_the_documents() {
        let page = |access| page_of(Order::Stride(1021), 0, access, 1000);
        assert_eq!((page(0), page(1), page(2), page(48)), (0, 21, 42, 8));
        let page = |access| page_of(Order::Stride(4099), 0, access, 1 << 20);
        assert_eq!(page(1_000), 4_099_000 % (1 << 20));
        let last = (1u64 << 32) - 1;
        assert_eq!(page_of(Order::Stride(last), 0, last, 1 << 32), 1);
    }

    #[test]
    fn random_pages_cover_the_file_evenly() {
        let mut hits = [0u32; 16];
        for access in 0..16_000 {
            hits[page_of(Order::Random, mix(1), access, 16) as usize] += 1;
        }
        assert!(hits.iter().all(|&n| (800..1200).contains(&n)), "{hits:?}");
        assert_ne!(
            page_of(Order::Random, mix(1), 5, 1 << 30),
            page_of(Order::Random, mix(2), 5, 1 << 30)
        );
    }
}
