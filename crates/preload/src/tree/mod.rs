//! The budget of a tree of processes: the value of `--memory`, divided between the engines of all its processes.
//!
//! ```text
//!   SOFTFAULT_RUN_TREE names a file in memory, which each process of the tree maps        page.rs
//!     ┌──────────────────────────────┬────────┬────────┬────────┬──
//!     │ memory, peak, the page's lock│ member │ member │ member │ ...
//!     └──────────────────────────────┴────────┴────────┴────────┴──
//!   a member: a process that has an engine                                                 member.rs
//!     its lock is a robust mutex, held by a thread of ours for as long as the process lives: the kernel
//!         says when the process has ended, however it did
//!     its share is its engine's budget
//!     its wake word is the word that the thread sleeps on
//!
//!   an engine that begins to evict ──► wakes its own thread ──► takes free memory; where that is too little,
//!         wakes those that have more than they are due ──► they evict, give, and wake it     share.rs
//!   the part that each is due: max-min fair                                                          level.rs
//! ```
//!
//! The sum of the shares is at most the budget of the tree, and `MIN_MEMORY` more for each process that came when
//! nothing was free, and to which the others have not given yet. A share is raised before the engine's budget is, and
//! lowered after it. Nothing waits for another process, except for a moment: one that is stopped gives nothing, and the
//! others go on with their shares.

mod level;
mod member;
mod page;
mod robust;
mod share;

use crate::{options, program, standard_error};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use page::Page;
use share::Seat;
use softfault::{Engine, MIN_MEMORY};
use std::io;

/// The tree, as a process has it that has an engine.
#[derive(Clone, Copy)]
pub struct Tree {
    /// Immutable.
    page: &'static Page,
    /// Immutable.
    seat: &'static Seat,
}

/// The budget of a process's engine.
pub enum Share {
    /// There is no tree: the budget is the process's own.
    Own,
    /// The tree's, of which it has so many bytes now.
    Of(Tree, usize),
    /// The tree's page cannot be had here: the least that an engine can do with.
    Least,
}

/// This process's seat, for threads that evict. Null before there is one, and in a child of fork.
static SEAT: AtomicPtr<Seat> = AtomicPtr::new(core::ptr::null_mut());

/// Joins the tree, before an engine is made. In a thread that is inside, with the table locked.
pub fn join() -> Share {
    let Some(path) = &options::get().tree else {
        return Share::Own;
    };
    let memory = (options::get().memory).unwrap_or_else(softfault::default_memory);
    if memory < MIN_MEMORY {
        // That is an error, and the engine's to tell.
        return Share::Own;
    }
    match join_at(path, memory) {
        Ok(Some(tree)) => {
            let bytes = tree.seat.first_share();
            Share::Of(tree, bytes)
        }
        // The tree is full, or there can be no thread for it. No line: children that live for a moment have been refused one.
        Ok(None) => Share::Least,
        Err(why) => {
            tell_of_least(path, &why);
            Share::Least
        }
    }
}

/// `None` if there is no place in the tree, an error if its page cannot be had.
fn join_at(path: &'static CStr, memory: usize) -> io::Result<Option<Tree>> {
    let is_said = options::get().memory.is_some();
    // Once more where the page was given up just then.
    for _ in 0..3 {
        let page = Page::open(path, memory, is_said)?;
        if let Some(seat) = Seat::take(page) {
            // Release pairs with the Acquire in `begins_to_evict`.
            SEAT.store(core::ptr::from_ref(seat).cast_mut(), Ordering::Release);
            return Ok(Some(Tree { page, seat }));
        }
    }
    Ok(None)
}

/// Once in a process and the children that it forks.
fn tell_of_least(path: &CStr, why: &io::Error) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    // Relaxed: it guards nothing.
    if IS_TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    let (prefix, mib) = (program::line_prefix(), MIN_MEMORY >> 20);
    standard_error::print_line(&format!(
        "{prefix}: this process has the minimum budget, {mib} MiB, for it cannot use {path:?}, by which processes share --memory: {why}; --memory-per-process needs no such file\n"
    ));
}

/// Joins the tree with an engine that is there already, and has the budget that it was made with.
pub fn join_with(engine: &Engine) -> Option<Tree> {
    let (bytes, tree) = match join() {
        Share::Own => return None,
        Share::Of(tree, bytes) => (bytes, Some(tree)),
        Share::Least => (MIN_MEMORY, None),
    };
    // Where its tables alone are more, it has those.
    let _ = engine.set_memory(bytes);
    if let Some(tree) = &tree {
        tree.serve(Some(engine));
    }
    tree
}

/// The engine evicts, for want of memory. In any state of the program.
pub fn begins_to_evict() {
    // Acquire pairs with the Release in `join_at`.
    // SAFETY: null, or never dropped.
    if let Some(seat) = unsafe { SEAT.load(Ordering::Acquire).as_ref() } {
        seat.is_short();
    }
}

/// Bytes that this process's share could come to: with all that is nobody's, or an even part. `None` without a tree.
pub fn could_have() -> Option<u64> {
    // Acquire pairs with the Release in `join_at`.
    // SAFETY: null, or never dropped.
    let seat = unsafe { SEAT.load(Ordering::Acquire).as_ref() }?;
    Some(seat.could_have())
}

/// In a child of fork: the parent's seat is not the child's.
pub fn forked() {
    // Relaxed: there is one thread.
    SEAT.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// The tree's figures, for `--stats`.
pub struct TreeStats {
    /// Bytes that this process may have now.
    pub share: u64,
    /// Bytes that all may have.
    pub memory: u64,
    /// The most that they had at a time, at most.
    pub peak: u64,
    /// The most processes that had an engine at a time.
    pub processes: u64,
}

impl Tree {
    /// The engine that was made with the share; `None`: none could be made, and the share is free again.
    pub fn serve(&self, engine: Option<&Engine>) {
        match engine {
            Some(engine) => self.seat.serve(engine.clone()),
            None => {
                // Another process may have the place soon.
                SEAT.store(core::ptr::null_mut(), Ordering::Relaxed);
                self.seat.leave();
            }
        }
    }

    /// The tree's figures, once the others know the peak of this process's engine.
    pub fn stats(&self, engine: &Engine) -> TreeStats {
        self.seat.tell_peak(engine.stats().peak_bytes);
        self.seat.stats()
    }
}

/// At the end of a process, with its tree if it has joined it: the last one removes the page's file.
pub fn ends(tree: Option<&Tree>) {
    match (tree, &options::get().tree) {
        (Some(tree), Some(path)) => tree.page.give_up(path, Some(tree.seat.number())),
        (None, Some(path)) => page::ends_without(path),
        (_, None) => {}
    }
}
