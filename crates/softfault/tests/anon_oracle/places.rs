//! Where the pages of the arena are, and touches of them.

use softfault_oracle::{ARENA_PAGES, Access, Expected};
use std::io;
use std::ops::Range;

pub const PAGE: usize = 4096;

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub start: usize,
    pub is_writable: bool,
}

/// Where each page of the arena is, if it is mapped.
pub struct Places(Vec<Option<Place>>);

impl Places {
    pub fn new() -> Self {
        Self(vec![None; ARENA_PAGES])
    }

    pub fn is_free(&self, pages: &Range<usize>) -> bool {
        self.0[pages.clone()].iter().all(Option::is_none)
    }

    /// They are mapped from an address on, or not at all.
    pub fn set(&mut self, pages: &Range<usize>, start: Option<usize>) {
        for (nth, place) in self.0[pages.clone()].iter_mut().enumerate() {
            *place = start.map(|start| Place {
                start: start + nth * PAGE,
                is_writable: true,
            });
        }
    }

    pub fn set_writable(&mut self, pages: &Range<usize>, is_writable: bool) {
        for place in self.0[pages.clone()].iter_mut().flatten() {
            place.is_writable = is_writable;
        }
    }

    pub fn is_writable(&self, page: usize) -> bool {
        self.0[page].is_some_and(|place| place.is_writable)
    }

    /// True if a page is mapped at that address.
    pub fn is_at(&self, page: usize, start: usize) -> bool {
        self.0[page].is_some_and(|place| place.start == start)
    }

    /// Ranges of mapped pages.
    pub fn mapped(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for page in (0..self.0.len()).filter(|&page| self.0[page].is_some()) {
            match ranges.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                _ => ranges.push(page..page + 1),
            }
        }
        ranges
    }

    /// The addresses of mapped pages.
    pub fn addresses(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().flatten().map(|place| place.start)
    }

    fn place(&self, at: usize) -> Option<Place> {
        let page = self.0[at / PAGE]?;
        Some(Place {
            start: page.start + at % PAGE,
            ..page
        })
    }
}

/// Plain loads and stores.
pub struct Way<'a>(pub &'a Places);

impl Access for Way<'_> {
    fn read(&mut self, _space: usize, at: usize, bytes: &mut [u8]) -> Expected {
        let Some(source) = self.0.place(at) else {
            return Expected::Unmapped;
        };
        for (nth, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: mapped; threads write bytes of their own.
            *byte = unsafe { ((source.start + nth) as *const u8).read_volatile() };
        }
        Expected::Done
    }

    fn write(&mut self, _space: usize, at: usize, bytes: &[u8]) -> Expected {
        let Some(target) = self.0.place(at) else {
            return Expected::Unmapped;
        };
        if !target.is_writable {
            return write_as_a_call(target.start, bytes);
        }
        for (nth, &byte) in bytes.iter().enumerate() {
            // SAFETY: as in `read`; it is mapped for writing.
            unsafe { ((target.start + nth) as *mut u8).write_volatile(byte) };
        }
        Expected::Done
    }
}

/// A store there would be the end: a system call gets an error.
fn write_as_a_call(start: usize, bytes: &[u8]) -> Expected {
    let iovec = |start: usize| libc::iovec {
        iov_base: start as *mut libc::c_void,
        iov_len: bytes.len(),
    };
    let (source, target) = (iovec(bytes.as_ptr() as usize), iovec(start));
    // SAFETY: the source is a slice; the target is read-only by the model.
    let written = unsafe { libc::process_vm_writev(libc::getpid(), &source, 1, &target, 1, 0) };
    match written {
        -1 => {
            let error = io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::EFAULT), "{error}");
            Expected::Forbidden
        }
        _ => Expected::Done,
    }
}
