//! Ranges of many maps, brought in by one call: for bindings to other languages, where a call's ranges are addresses.
//!
//! ```text
//!   an engine's maps   one pass: their reads are in flight together, for all maps
//!   the kernel's       told before the passes, and waited for after them
//! ```

use crate::Engine;
use crate::access_path::AccessPath;
use crate::error::FaultError;
use crate::fault_in::{Awaited, FaultInMany, KeptServed};
use crate::many::Many;
use crate::range::within;
use core::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A map, and ranges of its offsets.
pub(crate) type MapRanges<'a> = (&'a dyn Awaited, &'a [Range<usize>]);

/// The result for each range of a map: success, or the error.
type Answers = Vec<Result<(), FaultError>>;

/// A range: the number of its map, and its index among the ranges of that map.
type Place = (usize, usize);

/// Ranges that are brought in by one pass over an engine's space.
struct Pass<'a> {
    engine: &'a Engine,
    /// Keeps the maps served by the engine meanwhile.
    kept: Vec<KeptServed>,
    places: Vec<Place>,
    /// Addresses, in the same order.
    ranges: Vec<Range<usize>>,
}

/// The work of the call.
struct Plan<'a> {
    passes: Vec<Pass<'a>>,
    /// The number of a map, and its ranges.
    by_kernel: Vec<(usize, FaultInMany<'a>)>,
    /// By maps. An error for a range outside its map, and for a map of the parent process.
    answers: Vec<Answers>,
}

impl<'a> Plan<'a> {
    /// Tells the kernel which ranges of the maps that it serves will be needed, unless it is too late.
    fn new(asked: &[MapRanges<'a>], until: Option<Instant>) -> Self {
        let mut plan = Self {
            passes: Vec::new(),
            by_kernel: Vec::new(),
            answers: Vec::with_capacity(asked.len()),
        };
        for (number, &(map, ranges)) in asked.iter().enumerate() {
            let all = map.place();
            let addresses = |range| all.and_then(|(start, len)| within(start, len, range));
            let addresses: Vec<_> = ranges.iter().map(addresses).collect();
            let results = addresses.iter().map(|range| range.as_ref().map(drop));
            plan.answers.push(
                results
                    .map(|result| result.map_err(|&error| error))
                    .collect(),
            );
            if all.is_err() {
                continue;
            }
            let inside = addresses.into_iter().enumerate();
            let inside = inside.filter_map(|(place, range)| Some(((number, place), range.ok()?)));
            let inside = inside.filter(|(_, range)| !range.is_empty());
            let kept = map.served();
            if kept.by_kernel {
                let mut many = FaultInMany::new(map, ranges).with_deadline(until);
                many.will_need();
                plan.by_kernel.push((number, many));
                continue;
            }
            let pass = plan.pass_of(map.engine());
            pass.kept.push(kept);
            for (place, range) in inside {
                pass.places.push(place);
                pass.ranges.push(range);
            }
        }
        plan
    }

    /// The pass over an engine.
    fn pass_of(&mut self, engine: &'a Engine) -> &mut Pass<'a> {
        let is_it = |pass: &Pass<'_>| Arc::ptr_eq(&pass.engine.inner, &engine.inner);
        let known = self.passes.iter().position(is_it);
        let number = known.unwrap_or_else(|| {
            self.passes.push(Pass {
                engine,
                kept: Vec::new(),
                places: Vec::new(),
                ranges: Vec::new(),
            });
            self.passes.len() - 1
        });
        &mut self.passes[number]
    }
}

/// Brings ranges of many maps in, and waits until they are in memory, or until the deadline: as
/// [`FaultInMany::wait`](crate::FaultInMany::wait) for each map.
pub(crate) fn wait(asked: &[MapRanges<'_>], until: Option<Instant>) -> Vec<Answers> {
    let Plan {
        passes,
        by_kernel,
        mut answers,
    } = Plan::new(asked, until);
    for pass in passes {
        let managed = pass.engine.inner.managed();
        let space = &managed.expect("it serves maps").space;
        let came = Many::of_addresses(&pass.ranges).wait(space, AccessPath::ByLoads, until);
        for ((map, place), answer) in pass.places.into_iter().zip(came) {
            answers[map][place] = answer;
        }
        drop(pass.kept);
    }
    for (number, many) in by_kernel {
        answers[number] = many.wait();
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MmapMut, MmapOptions};

    const PAGE: usize = 4096;

    fn engine() -> Engine {
        Engine::builder().memory(8 << 20).build().unwrap()
    }

    fn memory(engine: &Engine) -> MmapMut {
        let mut options = MmapOptions::new();
        options.len(8 * PAGE).map_anon_in(engine).unwrap()
    }

    #[test]
    fn maps_of_one_engine_are_one_pass() {
        let (one, other) = (engine(), engine());
        let maps = [memory(&one), memory(&other), memory(&one), memory(&one)];
        let stack = MmapOptions::new().len(PAGE).stack().map_anon().unwrap();
        let ranges = [0..1, 5 * PAGE..9 * PAGE, 3..3, PAGE..2 * PAGE];
        let mut asked: Vec<MapRanges<'_>> =
            maps.iter().map(|map| (map as _, &ranges[..])).collect();
        asked.push((&stack, &ranges[..1]));
        let plan = Plan::new(&asked, None);
        let places: Vec<_> = plan.passes.iter().map(|pass| &pass.places[..]).collect();
        // Neither ranges that are too long nor empty ones.
        let first = [(0, 0), (0, 3), (2, 0), (2, 3), (3, 0), (3, 3)];
        assert_eq!(places, [&first[..], &[(1, 0), (1, 3)]]);
        assert_eq!(plan.by_kernel.len(), 1);
        drop(plan);
        let mut expected = vec![vec![Ok(()), Err(FaultError::OutOfRange), Ok(()), Ok(())]; 4];
        expected.push(vec![Ok(())]);
        assert_eq!(wait(&asked, None), expected);
        assert!(
            maps.iter()
                .all(|map| map.residency(0..PAGE).unwrap().mapped == 1)
        );
    }
}
