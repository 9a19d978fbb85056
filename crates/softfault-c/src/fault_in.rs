//! Ranges brought into memory at a call.

use crate::access::bytes;
use crate::boundary::answer;
use crate::failure::{Failure, errno_of};
use crate::maps::{self, NotMapped, Part};
use core::ffi::{c_int, c_void};
use core::ops::Range;
use libc::{iovec, timespec};
use softfault::MmapRaw;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Brings a range into memory, as reads would, and waits until it is there. Errors are values here, not signals.
///
/// addr and length may have any values. The range may be evicted again at once; softfault_pin keeps it.
///
/// Returns 0, or -1 with errno:
///   EFAULT  some of the range is past the end of the file
///   EINVAL  the range does not fit in the address space
///   ENOMEM  some of the range is not mapped by softfault, or the budget has no room for a page of it
///   or the error of a failed read.
///
/// Several threads may call this at the same time, also on the same range. Signals are delivered meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn softfault_fault_in(addr: *const c_void, length: usize) -> c_int {
    answer(-1, || {
        let range = bytes(addr, length)?;
        let parts = Part::of(&range).map_err(|NotMapped| Failure::not_mapped())?;
        for part in &parts {
            part.map.populate(part.kept_offsets(), false)?;
        }
        Ok(0)
    })
}

/// Brings many ranges into memory, and waits until they are there or the deadline has passed. The ranges may be in any
/// order and may overlap. Many reads are in flight at a time, enough to keep the disk busy.
///
/// ranges has count entries; results, if not NULL, has room for count entries. A result is 0 if the range is in memory,
/// or the error of its first page that could not be read:
///   EFAULT     past the end of the file
///   EINVAL     the range does not fit in the address space
///   ENOMEM     not mapped by softfault, or the budget has no room for it
///   ETIMEDOUT  it was not in memory at the deadline
///   or the error of its read.
/// A range that fails does not stop the others. The pages may be evicted again; if the ranges are larger than the budget,
/// the first are evicted before the last are read.
///
/// deadline is a time of CLOCK_MONOTONIC, or NULL for none. Reads under way at the deadline are abandoned; a read that
/// this thread does itself, through the kernel's page cache, is finished first.
///
/// The reads of all maps of an engine are in flight together; several engines are served one after the other. Maps that
/// the kernel serves are requested first, and waited for at the end.
///
/// Returns the number of ranges that are not in memory: 0 if all are; or -1 with errno, and nothing was done:
///   EFAULT  ranges is NULL, and count is not 0
///   EINVAL  count does not fit in an int, or deadline is not a valid time
///
/// Several threads may call this at the same time, also on the same ranges, with arrays of their own. Signals are
/// delivered meanwhile.
///
/// # Safety
/// The arrays have `count` elements, of which those of `results` can be written; `deadline` is null or a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softfault_fault_in_many(
    ranges: *const iovec,
    count: usize,
    deadline: *const timespec,
    results: *mut c_int,
) -> c_int {
    answer(-1, || {
        if count > c_int::MAX as usize {
            return Err(Failure::invalid(
                "there are too many ranges: count must fit in an int",
            ));
        }
        if ranges.is_null() && count > 0 {
            return Err(Failure::new(libc::EFAULT, "ranges is NULL"));
        }
        let until = match deadline.is_null() {
            true => None,
            // SAFETY: the caller's.
            false => Some(instant(unsafe { &*deadline })?),
        };
        let mut many = Many::default();
        for place in 0..count {
            // SAFETY: the caller has `count` of them.
            let range = unsafe { &*ranges.add(place) };
            many.add(place, range.iov_base, range.iov_len);
        }
        let failed = many.wait(until);
        if !results.is_null() {
            // SAFETY: the caller has `count` of them.
            unsafe { results.write_bytes(0, count) };
            for (place, errno) in &failed {
                // SAFETY: the same; the place is one of theirs.
                unsafe { results.add(*place).write(*errno) };
            }
        }
        Ok(failed.len() as c_int)
    })
}

/// Ranges by the maps that they are of.
#[derive(Default)]
struct Many {
    maps: Vec<Wanted>,
    /// Where a map is among them, by its address.
    numbers: HashMap<*const MmapRaw, usize>,
    /// By their place.
    failed: Vec<(usize, c_int)>,
}

/// The requested ranges of a map.
#[derive(Default)]
struct Wanted {
    /// Of the map: pages that are unmapped meanwhile stay as long as these.
    parts: Vec<Part>,
    /// Offsets in it.
    ranges: Vec<Range<usize>>,
    /// Which of the caller's ranges each is of.
    places: Vec<usize>,
}

impl Many {
    fn add(&mut self, place: usize, addr: *const c_void, length: usize) {
        let parts = match bytes(addr, length).map(|range| Part::of(&range)) {
            Ok(Ok(parts)) => parts,
            Ok(Err(NotMapped)) => return self.failed.push((place, libc::ENOMEM)),
            Err(failure) => return self.failed.push((place, failure.errno)),
        };
        for part in parts {
            let range = part.kept_offsets();
            let number = *self
                .numbers
                .entry(Arc::as_ptr(&part.map))
                .or_insert(self.maps.len());
            if number == self.maps.len() {
                self.maps.push(Wanted::default());
            }
            let wanted = &mut self.maps[number];
            wanted.parts.push(part);
            wanted.ranges.push(range);
            wanted.places.push(place);
        }
    }

    /// The places of those that are not in memory, with why not, each once.
    fn wait(self, until: Option<Instant>) -> Vec<(usize, c_int)> {
        let maps = self.maps.iter();
        let asked: Vec<_> = maps
            .map(|wanted| (&*wanted.parts[0].map, &wanted.ranges[..]))
            .collect();
        let answers = MmapRaw::fault_in_all(&asked, until);
        drop(asked);
        let mut failed = self.failed;
        for (wanted, answers) in self.maps.iter().zip(answers) {
            let answers = wanted.places.iter().zip(answers);
            let errors = answers.filter_map(|(&place, answer)| Some((place, answer.err()?)));
            failed.extend(errors.map(|(place, error)| (place, errno_of(error))));
        }
        let of_each: Vec<_> = (self.maps.iter())
            .map(|wanted| wanted.parts[0].range.start)
            .collect();
        drop(self.maps);
        of_each.into_iter().for_each(maps::forget_ended_calls);
        // Stable: of a range of two maps the error of the map that was named first is told.
        failed.sort_by_key(|&(place, _)| place);
        failed.dedup_by_key(|&mut (place, _)| place);
        failed
    }
}

/// A time of CLOCK_MONOTONIC, which is `Instant`'s clock too.
fn instant(time: &timespec) -> Result<Instant, Failure> {
    let wrong = || Failure::invalid("the deadline is not a valid time");
    let nanos = u32::try_from(time.tv_nsec)
        .ok()
        .filter(|&nanos| nanos < 1_000_000_000);
    let seconds = u64::try_from(time.tv_sec).map_err(|_| wrong())?;
    let deadline = Duration::new(seconds, nanos.ok_or_else(wrong)?);
    let now = Duration::from_nanos(softfault::clock::now_ns());
    let at = Instant::now();
    // One that is over is over now.
    let left = deadline.saturating_sub(now);
    at.checked_add(left).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmap::softfault_mmap;
    use crate::munmap::softfault_munmap;

    fn map(addr: *mut c_void, length: usize, flags: c_int) -> *mut c_void {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        softfault_mmap(addr, length, prot, flags, -1, 0)
    }

    /// Each range is a call under way, and these are in no budget.
    #[test]
    fn many_ranges_leave_no_memory_behind() {
        const PAGE: usize = 4096;
        let start = map(core::ptr::null_mut(), 8 * PAGE, 0);
        assert_ne!(start, libc::MAP_FAILED);
        let mut many = Many::default();
        (0..10_000).for_each(|place| many.add(place, start, PAGE));
        assert!(maps::room_for_calls(start as usize) >= 10_000);
        assert_eq!(many.wait(None), []);
        assert_eq!(maps::room_for_calls(start as usize), 0);
        // SAFETY: nobody else uses the map.
        assert_eq!(unsafe { softfault_munmap(start, 8 * PAGE) }, 0);
    }

    /// Failed before: the page was another's while the call brought it in.
    #[test]
    fn a_page_that_is_unmapped_stays_until_all_ranges_are_in() {
        const PAGE: usize = 4096;
        let start = map(core::ptr::null_mut(), 8 * PAGE, 0);
        assert_ne!(start, libc::MAP_FAILED);
        let mut many = Many::default();
        many.add(0, start, PAGE);
        many.add(1, start.wrapping_byte_add(PAGE), 6 * PAGE);
        let page = start.wrapping_byte_add(3 * PAGE);
        // SAFETY: nobody else uses the map.
        assert_eq!(unsafe { softfault_munmap(page, PAGE) }, 0);
        let again = || map(page, PAGE, libc::MAP_FIXED);
        assert_eq!(again(), libc::MAP_FAILED, "the call uses it");
        assert_eq!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(libc::EBUSY)
        );
        assert_eq!(many.wait(None), []);
        assert_eq!(again(), page);
        // SAFETY: as above.
        assert_eq!(unsafe { softfault_munmap(start, 8 * PAGE) }, 0);
    }
}
