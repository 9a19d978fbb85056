//! The cost of the bytes of pages.

use super::memory::{Memory, PAGE};
use super::sample::{each, median, whole};
use super::{Failure, Sources, Watch};
use sync::topology::PageCosts;

/// More than caches hold: pages go at the speed of memory, as in a large map.
const POOL: usize = 128 << 20;
/// The same in a hurry.
const SMALL_POOL: usize = 64 << 20;
/// Pages of a sample.
const PAGES: usize = 256;
/// Mappings of a sample.
const MAPPINGS: usize = 32;
/// Bytes that the engine maps at a time.
const MAPPED: usize = 2 << 20;

/// Measures all of them.
pub fn measure(watch: &mut Watch, sources: &mut Sources) -> Result<PageCosts, Failure> {
    let pool = Memory::map(if watch.quick { SMALL_POOL } else { POOL }, false)?;
    let fresh = fresh(watch)?;
    pool.touch();
    let mut next = 0;
    let clear = median(watch, "clearing a page", || {
        Ok(each(PAGES, || {
            for _ in 0..PAGES {
                next = (next + 1) % pool.pages();
                // SAFETY: a page of the pool, to which nobody has a reference.
                unsafe { pool.page(next).write_bytes(0, PAGE) };
            }
        }))
    })?;
    let half = pool.pages() / 2;
    let copy = median(watch, "copying a page", || {
        Ok(each(PAGES, || {
            for _ in 0..PAGES {
                next = (next + 1) % half;
                let (from, to) = (pool.page(next), pool.page(half + next));
                // SAFETY: two pages of the pool that are not the same.
                unsafe { to.copy_from_nonoverlapping(from, PAGE) };
            }
        }))
    })?;
    let map = median(watch, "mapping memory", || {
        let mut maps = Vec::with_capacity(MAPPINGS);
        let begin = std::time::Instant::now();
        for _ in 0..MAPPINGS {
            maps.push(Memory::map(MAPPED, false)?);
        }
        drop(maps);
        // Mapping, its advice and unmapping are three.
        Ok(begin.elapsed().as_nanos() as f64 * 1e3 / (3 * MAPPINGS) as f64)
    })?;
    sources.note(format!(
        "A page that the kernel has yet to provide costs {:.2} us at its first touch, which the \
         model does not have: frames are recycled",
        fresh / 1e6
    ));
    Ok(PageCosts {
        clear: whole(clear),
        copy: whole(copy),
        map: whole(map),
    })
}

/// The first touch of a page, picoseconds.
fn fresh(watch: &mut Watch) -> Result<f64, Failure> {
    let memory = Memory::map(PAGES * PAGE, false)?;
    median(watch, "a fresh page", || {
        let picoseconds = each(PAGES, || memory.touch());
        memory.drop_pages()?;
        Ok(picoseconds)
    })
}
