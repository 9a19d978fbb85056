//! The position at which a map is read and written as a file.
//!
//! mmap.mmap has the interpreter's lock from its look at the position until it has moved it. Here the lock is let go for the copy
//! in between, so a call moves the position before it copies: no other call gets the same bytes. The end of a line is
//! known only once the line was read, so calls that begin meanwhile wait for that.

use super::{Mmap, State};
use crate::held::Held;
use crate::memory::Memory;
use core::ops::Range;
use pyo3::prelude::*;
use std::sync::MutexGuard;

/// The position of a map. Protected by the map's state.
pub(super) struct Position {
    at: usize,
    /// The number of its last move. A call that failed moves it back only if no other has moved it since.
    moves: u64,
    /// The process in which a thread looks for the end of a line, or 0: calls that need the position begin after it. A child of
    /// fork does not have that thread.
    in_line: u32,
}

impl Position {
    pub(super) fn start() -> Self {
        Self {
            at: 0,
            moves: 0,
            in_line: 0,
        }
    }

    /// The position, also while a thread looks for the end of a line: that call is seen as not begun yet.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn is_in_line(&self) -> bool {
        self.in_line != 0 && self.in_line == std::process::id()
    }

    fn go_to(&mut self, at: usize) {
        self.at = at;
        self.moves += 1;
    }
}

/// Bytes that no other call with the position gets. Dropped before they are used, they are given back.
pub(super) struct Reserved<'a> {
    map: &'a Mmap,
    pub(super) memory: Held,
    pub(super) part: Range<usize>,
    /// The number of the move, until the bytes are used.
    moved: Option<u64>,
}

impl Reserved<'_> {
    /// The bytes were read or written.
    pub(super) fn used(mut self) {
        self.moved = None;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let Some(moved) = self.moved else { return };
        let position = &mut self.map.state().position;
        if position.moves == moved {
            position.at = self.part.start;
            // The call in front of this one may fail as well.
            position.moves -= 1;
        }
    }
}

/// A line whose end is looked for. The thread that has this runs no code of the caller's, which might wait for it.
pub(super) struct Line<'a> {
    map: &'a Mmap,
    pub(super) memory: Held,
    pub(super) start: usize,
}

impl Line<'_> {
    /// The line was read.
    pub(super) fn ends(self, end: usize) {
        self.map.state().position.go_to(end);
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.map.state().position.in_line = 0;
    }
}

impl Mmap {
    /// The state, once no other thread changes the map or looks for the end of a line.
    fn once_positioned(&self) -> PyResult<MutexGuard<'_, State>> {
        self.once(|state| !state.is_resized() && !state.position.is_in_line())
    }

    /// Takes bytes from the position on, and moves it behind them. `len` says how many, of the memory and the position.
    pub(super) fn reserve(
        &self,
        len: impl FnOnce(&Memory, usize) -> PyResult<usize>,
    ) -> PyResult<Reserved<'_>> {
        let mut state = self.once_positioned()?;
        let memory = state.held()?;
        let start = state.position.at;
        let part = start..start + len(&memory, start)?;
        state.position.go_to(part.end);
        let moved = Some(state.position.moves);
        Ok(Reserved {
            map: self,
            memory,
            part,
            moved,
        })
    }

    /// Takes the line that begins at the position. Others wait for its end.
    pub(super) fn line(&self) -> PyResult<Line<'_>> {
        let mut state = self.once_positioned()?;
        let memory = state.held()?;
        state.position.in_line = std::process::id();
        Ok(Line {
            map: self,
            memory,
            start: state.position.at,
        })
    }

    /// Moves the position to the offset that `to` answers, of the memory and the position.
    pub(super) fn move_position(
        &self,
        to: impl FnOnce(&Memory, usize) -> PyResult<usize>,
    ) -> PyResult<usize> {
        let mut state = self.once_positioned()?;
        let memory = state.held()?;
        let to = to(&memory, state.position.at)?;
        state.position.go_to(to);
        Ok(to)
    }
}
