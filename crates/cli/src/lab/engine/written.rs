//! Maps that write to their file.

use super::WritableMapping;
use std::fs::File;
use std::io;
use std::ops::DerefMut;
use std::ptr::NonNull;

/// One that several threads write to. Immutable; its bytes are the threads' own affair.
pub struct Written<M> {
    start: NonNull<u8>,
    map: M,
    flush: fn(&M) -> io::Result<()>,
    grow: fn(&mut M, &File, usize) -> io::Result<()>,
}

impl<M: DerefMut<Target = [u8]>> Written<M> {
    /// Over a mapping whose bytes do not move with it.
    pub fn over(
        mut map: M,
        flush: fn(&M) -> io::Result<()>,
        grow: fn(&mut M, &File, usize) -> io::Result<()>,
    ) -> Self {
        Self {
            start: NonNull::from(&mut *map).cast(),
            map,
            flush,
            grow,
        }
    }
}

// SAFETY: the address is that of memory that this owns, and says nothing about the thread.
unsafe impl<M: Send> Send for Written<M> {}
// SAFETY: as above; flushing takes a shared reference.
unsafe impl<M: Sync> Sync for Written<M> {}

impl<M: DerefMut<Target = [u8]> + Send + Sync> WritableMapping for Written<M> {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn flush(&self) -> io::Result<()> {
        (self.flush)(&self.map)
    }

    fn grow(&mut self, file: &File, bytes: usize) -> io::Result<()> {
        let grown = (self.grow)(&mut self.map, file, bytes);
        // It may have moved and failed afterwards.
        self.start = NonNull::from(&mut *self.map).cast();
        grown
    }
}
