//! Reads in the calling thread, and how a read that came short goes on.

use softfault_engine::PAGE_SIZE;

use super::refusals::Refusals;

/// What to do after a part of a read has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// All there is: so many bytes.
    Over(usize),
    /// Read on from this byte of the buffer.
    Rest(usize),
}

/// `arrived` bytes came at byte `done` (a multiple of the page size) of a read
/// of `bytes`. A part that is no whole number of pages is usually the file's
/// tail, but a signal or a file being written may cut reads too: only a part
/// that brings no further page is the end.
pub(super) fn after(done: usize, arrived: usize, bytes: usize) -> Step {
    let end = done + arrived;
    let pages = end & !(PAGE_SIZE - 1);
    if end >= bytes || pages <= done {
        Step::Over(end)
    } else {
        Step::Rest(pages)
    }
}

/// Calls `pread` for what is left from a byte of the buffer on, until that is all, or the file's end, or an
/// error; in any case, until it has brought nothing for too long.
pub(super) fn read_with(
    bytes: usize,
    mut pread: impl FnMut(usize) -> Result<usize, i32>,
) -> Result<usize, i32> {
    let (mut done, mut refusals) = (0, Refusals::default());
    loop {
        match pread(done) {
            Ok(arrived) => match after(done, arrived, bytes) {
                Step::Over(end) => return Ok(end),
                Step::Rest(from) => {
                    done = from;
                    refusals.progress();
                }
            },
            Err(no) => refusals.again(no)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every errno that `pread` can answer, once and for ever, at the beginning and half-way.
    #[test]
    fn a_read_ends_whatever_the_system_answers() {
        for errno in 1..4096 {
            let waits = [libc::EINTR, libc::EAGAIN].contains(&errno);
            let mut calls = 0;
            let for_ever = read_with(8192, |_| {
                calls += 1;
                assert!(calls < 5000, "{errno}: no end");
                Err(errno)
            });
            assert_eq!(for_ever, Err(errno));
            let half_way = read_with(8192, |done| match done {
                0 => Ok(4096),
                _ => Err(errno),
            });
            assert_eq!(half_way, Err(errno));
            let mut first = true;
            let once = read_with(8192, |_| match core::mem::take(&mut first) {
                true => Err(errno),
                false => Ok(8192),
            });
            assert_eq!(once, if waits { Ok(8192) } else { Err(errno) });
        }
    }

    #[test]
    fn reads_go_on_until_whole_or_without_a_further_page() {
        assert_eq!(after(0, 8192, 8192), Step::Over(8192));
        assert_eq!(after(0, 0, 8192), Step::Over(0));
        // Cut in the middle of the second page, then the rest.
        assert_eq!(after(0, 5000, 8192), Step::Rest(4096));
        assert_eq!(after(4096, 4096, 8192), Step::Over(8192));
        // The file's tail: the second try brings the same bytes.
        assert_eq!(after(4096, 904, 8192), Step::Over(5000));
        // The tail is a whole page: nothing follows.
        assert_eq!(after(4096, 0, 8192), Step::Over(4096));
        assert_eq!(after(0, 100, 8192), Step::Over(100));
    }
}
