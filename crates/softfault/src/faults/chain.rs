//! Whose SIGBUS it is when it is not ours.
//!
//! The handler has a number of forms, which differ only in the handler that each passes on to.
//! A form is put in force over one handler only, its *predecessor*: the first time over the handler that was in force then, and
//! again where that handler is in force once more.
//!
//! ```text
//!   the program's own  ◄── form 0 ◄── a crash reporter ◄── form 1      in force
//!                                      (restores form 0, or calls it)
//! ```
//!
//! So a handler that was put over form 0, and calls or restores its predecessor, finds
//! form 0 with its own predecessor, and nothing goes round in a circle ([`enter`]). A program that saves and
//! restores its handlers any number of times takes a form for each handler that it has. When the forms are
//! used up we get in front no more: a program that puts up ever more handlers wins.
//!
//! A predecessor with SA_RESETHAND gets one signal, as from the kernel: the default is in its place from then on. Nothing else
//! here is ever taken back, and all of it is words: a handler may come at any time.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use libc::c_int;

/// Forms of the handler.
pub(super) const FORMS: usize = 16;

/// The action for a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) handler: usize,
    pub(super) flags: c_int,
    /// The kernel's signals.
    pub(super) mask: u64,
}

struct Predecessor {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
    /// The three are written: another thread may put the form in force.
    is_written: AtomicBool,
}

/// Each form's predecessor. Written once, before the form is in force; one with SA_RESETHAND once more, by its signal.
static PREDECESSORS: [Predecessor; FORMS] = [const {
    Predecessor {
        handler: AtomicUsize::new(libc::SIG_DFL),
        flags: AtomicI32::new(0),
        mask: AtomicU64::new(0),
        is_written: AtomicBool::new(false),
    }
}; FORMS];

/// Forms that were taken, each by one thread.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A form whose predecessor is this, for the caller to put in force: the one that was in force over it before, or a new one.
/// `None` if all are used up.
pub(super) fn take(predecessor: Action) -> Option<usize> {
    if let Some(form) = taken_for(predecessor) {
        return Some(form);
    }
    let more = |taken: u32| ((taken as usize) < FORMS).then_some(taken + 1);
    let form = TAKEN.fetch_update(Relaxed, Relaxed, more).ok()? as usize;
    let slot = &PREDECESSORS[form];
    slot.flags.store(predecessor.flags, Relaxed);
    slot.mask.store(predecessor.mask, Relaxed);
    // Release pairs with the Acquire in `predecessor`. (The call that puts the form in
    // force orders it too.)
    slot.handler.store(predecessor.handler, Release);
    // Release pairs with the Acquire in `taken_for`.
    slot.is_written.store(true, Release);
    Some(form)
}

/// The form that was taken for this predecessor. Nothing of it changes: it may be in a handler meanwhile.
fn taken_for(action: Action) -> Option<usize> {
    let has_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.handler);
    // A handler for one signal is another each time that it is installed: a form may have had its signal already.
    if has_handler && action.flags & libc::SA_RESETHAND != 0 {
        return None;
    }
    // Flags and mask are for handlers.
    let is_it = |of: Action| match has_handler {
        true => of == action,
        false => of.handler == action.handler,
    };
    // A form that another thread is about to write is not known yet, and shows the default action meanwhile.
    let is_written = |form: &usize| PREDECESSORS[*form].is_written.load(Acquire);
    let mut forms = (0..FORMS).filter(is_written);
    forms.find(|&form| is_it(predecessor(form)))
}

/// True once a form was taken.
pub(super) fn is_begun() -> bool {
    TAKEN.load(Relaxed) > 0
}

/// True where no handler is ever put over ours: the program's calls that would do so are reported to us.
static CALLS_INTERCEPTED: AtomicBool = AtomicBool::new(false);

/// All of the program's calls that set the action are reported from now on.
pub(super) fn set_calls_intercepted() {
    // Relaxed, as below: said before a form is in force.
    CALLS_INTERCEPTED.store(true, Relaxed);
}

/// True if a handler may get a signal before a form of ours does.
pub(super) fn may_have_later_handlers() -> bool {
    !CALLS_INTERCEPTED.load(Relaxed)
}

/// The program's later action for SIGBUS, where its calls are reported to us: the first form passes on to it.
static INSTEAD: AtomicPtr<InstalledAction> = AtomicPtr::new(core::ptr::null_mut());

/// All that was ever said, once each: a handler may look at any of it at any time.
static ALL_ACTIONS: AtomicPtr<InstalledAction> = AtomicPtr::new(core::ptr::null_mut());

struct InstalledAction {
    action: Action,
    /// Immutable once others know it. Relaxed: the pointer to it is released.
    next: AtomicPtr<InstalledAction>,
}

/// In the place of an action with SA_RESETHAND that has had its signal.
static DEFAULT: InstalledAction = InstalledAction {
    action: Action {
        handler: libc::SIG_DFL,
        flags: 0,
        mask: 0,
    },
    next: AtomicPtr::new(core::ptr::null_mut()),
};

/// The first form passes on to this from now on, as if it had been put over it.
pub(super) fn replace(action: Action) {
    let mut known = ALL_ACTIONS.load(Acquire);
    // SAFETY: null, or leaked below.
    while let Some(said) = unsafe { known.as_ref() } {
        if said.action == action {
            return INSTEAD.store(known, Release);
        }
        known = said.next.load(Relaxed);
    }
    let mut next = ALL_ACTIONS.load(Acquire);
    let said = Box::into_raw(Box::new(InstalledAction {
        action,
        next: AtomicPtr::new(next),
    }));
    // Release pairs with the Acquire above.
    while let Err(other) = ALL_ACTIONS.compare_exchange(next, said, Release, Acquire) {
        next = other;
        // SAFETY: nobody knows it yet.
        unsafe { (*said).next.store(next, Relaxed) };
    }
    // Release pairs with the Acquire in `predecessor`.
    INSTEAD.store(said, Release);
}

/// The action that a form passes on to.
pub(super) fn predecessor(form: usize) -> Action {
    // SAFETY: null, or leaked by `replace`, or a static.
    let said = unsafe { INSTEAD.load(Acquire).as_ref() };
    if let Some(said) = said.filter(|_| form == 0) {
        return said.action;
    }
    let slot = &PREDECESSORS[form];
    Action {
        handler: slot.handler.load(Acquire),
        flags: slot.flags.load(Relaxed),
        mask: slot.mask.load(Relaxed),
    }
}

/// The same, for a signal that is passed on: an action with SA_RESETHAND has had its one by it.
pub(super) fn predecessor_for_signal(form: usize) -> Action {
    loop {
        let said = INSTEAD.load(Acquire);
        let to = predecessor(form);
        let is_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&to.handler);
        if !is_handler || to.flags & libc::SA_RESETHAND == 0 {
            return to;
        }
        // Relaxed, both: what is put there was there all the time.
        let taken = match form == 0 && !said.is_null() {
            true => {
                let default = (&raw const DEFAULT).cast_mut();
                let taken = INSTEAD.compare_exchange(said, default, Relaxed, Relaxed);
                taken.is_ok()
            }
            false => {
                let handler = &PREDECESSORS[form].handler;
                let taken = handler.compare_exchange(to.handler, libc::SIG_DFL, Relaxed, Relaxed);
                taken.is_ok()
            }
        };
        // Otherwise another thread's signal has taken it, or the program has put another there.
        if taken {
            return to;
        }
    }
}

/// Signals that are being passed on at a time, in all threads; beyond, a circle is not
/// seen.
const MOST_PASSED: usize = 64;

/// A signal that is being passed on, by its siginfo: no two threads have one at the same
/// address.
struct Passed {
    info: AtomicUsize,
    /// Where the outermost form's frame is.
    frame: AtomicUsize,
    /// Forms that are passing it on.
    forms: AtomicU32,
}

static PASSED: [Passed; MOST_PASSED] = [const {
    Passed {
        info: AtomicUsize::new(0),
        frame: AtomicUsize::new(0),
        forms: AtomicU32::new(0),
    }
}; MOST_PASSED];

/// Notes that `form`, whose frame is at `frame`, passes on the signal of this siginfo; the
/// form to pass on as, which is an older one if this one is at it already: a handler that
/// was put in force twice, and has one predecessor. `None` if nobody is left.
pub(super) fn enter(info: usize, frame: usize, form: usize) -> Option<usize> {
    let known = PASSED
        .iter()
        .find(|passed| passed.info.load(Relaxed) == info);
    let free = |passed: &&Passed| {
        let claimed = passed.info.compare_exchange(0, info, Relaxed, Relaxed);
        claimed.is_ok()
    };
    let Some(passed) = known.or_else(|| PASSED.iter().find(free)) else {
        return Some(form);
    };
    // Relaxed, all of it: the thread's own. A handler that left by a jump left its note:
    // the same siginfo in a frame that is no deeper is another signal.
    if known.is_none() || frame >= passed.frame.load(Relaxed) {
        passed.frame.store(frame, Relaxed);
        passed.forms.store(0, Relaxed);
    }
    let busy = passed.forms.load(Relaxed);
    let form = (0..=form).rev().find(|form| busy >> form & 1 == 0)?;
    passed.forms.store(busy | 1 << form, Relaxed);
    Some(form)
}

/// The form is through with it.
pub(super) fn leave(info: usize, form: usize) {
    if let Some(passed) = PASSED
        .iter()
        .find(|passed| passed.info.load(Relaxed) == info)
    {
        let busy = passed.forms.load(Relaxed) & !(1 << form);
        passed.forms.store(busy, Relaxed);
        if busy == 0 {
            passed.info.store(0, Release);
        }
    }
}
