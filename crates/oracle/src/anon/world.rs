//! Worlds that obey operations on anonymous memory.

use super::model::{Expected, Paid};
use super::threads::{Step, obey_plans};
use crate::op::{MemoryVerb, Op};
use core::ops::Range;
use softfault_engine::mm::{MmError, Protection};

/// A thread's way to the bytes of a world. `at` is a byte of the arena; bytes
/// are of one page.
pub trait Access {
    /// Reads bytes.
    fn read(&mut self, space: usize, at: usize, bytes: &mut [u8]) -> Expected;
    /// Writes bytes.
    fn write(&mut self, space: usize, at: usize, bytes: &[u8]) -> Expected;
}

/// Something that obeys operations on anonymous memory. It begins with one
/// space, 0, in which nothing is mapped.
pub trait AnonWorld: Sync {
    /// Its name in a report.
    fn name(&self) -> &'static str {
        "the world"
    }
    /// A way to the bytes, for one thread.
    fn access(&self) -> Box<dyn Access + '_>;
    /// Maps zeros.
    fn map(&mut self, space: usize, pages: Range<usize>) -> Result<(), MmError>;
    /// Unmaps the mappings there.
    fn unmap(&mut self, space: usize, pages: Range<usize>);

    /// True if it has spaces that fork, protections, and moves, and if an
    /// access that cannot be served is an answer and not the end.
    fn is_whole(&self) -> bool {
        false
    }
    /// Changes the protection.
    fn protect(&mut self, _: usize, _: Range<usize>, _: Protection) -> Result<(), MmError> {
        unreachable!("the world is not whole")
    }
    /// True if protection, length and locking are changed of
    /// whole maps only, as a library has it, and not of any pages; and if nothing can
    /// be forbidden but writing.
    fn is_by_map(&self) -> bool {
        false
    }
    /// Lets the map that has these pages, and all of them, have so many.
    fn resize(&mut self, _: usize, _: Range<usize>, _pages: usize) {
        unreachable!("the world is not by map")
    }
    /// Moves the mappings there.
    fn remap(&mut self, _: usize, _: Range<usize>, _: usize) -> Result<(), MmError> {
        unreachable!("the world is not whole")
    }
    /// Copies a space to another number. `false` if there is no room for it, and
    /// nothing is left of the attempt.
    fn fork(&mut self, _space: usize, _child: usize) -> bool {
        unreachable!("the world is not whole")
    }
    /// Ends a space.
    fn exit(&mut self, _space: usize) {
        unreachable!("the world is not whole")
    }

    /// True if it has private copies of a file, and verbs on mapped ranges.
    fn is_managed(&self) -> bool {
        false
    }
    /// Maps private copies of pages of the file, from `from` on. They can be
    /// written to. Its bytes are those of [`byte_at`](crate::byte_at) of seed 0.
    fn map_copy(&mut self, _: usize, _: Range<usize>, _from: usize) -> Result<(), MmError> {
        unreachable!("the world is not managed")
    }
    /// Does something with pages that are all mapped and allow it; done, or
    /// [`Expected::Failed`].
    fn manage(&mut self, _: usize, _: Range<usize>, _: MemoryVerb) -> Expected {
        unreachable!("the world is not managed")
    }
    /// The layers under the spaces obey: memory, eviction, swap that fails.
    fn beneath(&mut self, _op: &Op) {}
    /// Every access can be served from now on: there is memory, and nothing fails.
    fn lift_shortage(&mut self) {}
    /// True if an access may get [`Expected::Failed`], and is then not done.
    fn may_fail(&self) -> bool {
        false
    }
    /// How many pages, of all spaces, may be locked at a time.
    fn most_locked(&self) -> usize {
        0
    }
    /// One of some pages, which are locked, that is not in memory.
    fn absent(&self, _space: usize, _pages: &[usize]) -> Option<usize> {
        None
    }

    /// Lets threads obey a plan each, at a time.
    fn run(&self, space: usize, plans: &[Vec<Step>]) {
        obey_plans(space, plans, self.is_whole(), || self.access());
    }

    /// Asserts the invariants of all spaces together.
    fn check_all(&self) {}

    /// Asserts the invariants, and that as many pages of a space are paid
    /// for as there should be.
    fn check(&self, _space: usize, _paid: Paid) {}
}
