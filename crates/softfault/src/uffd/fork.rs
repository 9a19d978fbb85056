//! The page tables when the process forks.
//!
//! A child inherits no userfaultfd with a mapping: the part of a window that the kernel
//! gives to it is plain memory there, nothing of it is protected, and a missing
//! page would be filled with zeros. The descriptors it inherits mean the parent.

use super::given::GivenParts;
use super::mmu::{UffdMmu, WindowEnds};
use core::ops::Range;
use libc::{c_int, c_void};
use softfault_engine::mmu::{MmuError, Reservation};
use std::collections::BTreeSet;
use std::sync::MutexGuard;

/// The lists of all windows, and of those that may only be read, locked.
pub struct WindowLists<'a> {
    windows: MutexGuard<'a, WindowEnds>,
    restricted: MutexGuard<'a, BTreeSet<usize>>,
    /// Parts of windows that are not the windows' any more.
    pub given: GivenParts,
    /// They stay as they are.
    _parts_lock: MutexGuard<'a, ()>,
}

impl UffdMmu {
    /// Keeps the lists of windows still while the process forks.
    pub fn fork_prepare(&self) -> WindowLists<'_> {
        let (windows, restricted) = (self.windows(), self.restricted());
        let parts_lock = self.given.lock_parts();
        WindowLists {
            windows,
            restricted,
            given: self.given.parts().clone(),
            _parts_lock: parts_lock,
        }
    }

    /// Lets children inherit the served parts of a window, or not any more.
    pub fn allow_inherit(&self, window: &Range<usize>, allowed: bool) {
        self.pins.share();
        let advice = match allowed {
            true => libc::MADV_DOFORK,
            false => libc::MADV_DONTFORK,
        };
        // SAFETY: advice about a window of ours. Where it is refused the child has
        // none, and dies of SIGSEGV at a touch.
        unsafe { sync::kernel_calls::madvise(window.start as *mut c_void, window.len(), advice) };
    }

    /// In the child: nothing of the parent's is to be touched through inherited
    /// descriptors, and every window that was not lent answers with SIGSEGV. The program
    /// may have asked the kernel to let children inherit others (MADV_DOFORK): missing
    /// pages there would be zeros.
    /// `freed` is told of each window in whose place there is nothing that was not ours.
    pub fn fork_child(
        &self,
        lists: &WindowLists<'_>,
        is_lent: impl Fn(usize) -> bool,
        mut freed: impl FnMut(&Range<usize>),
    ) {
        for opened in self.descriptors.iter().filter_map(|slot| slot.get()) {
            opened.close();
        }
        self.zap.fork_child();
        self.looks.fork_child();
        for (&start, &(end, _)) in &*lists.windows {
            let window = start..end;
            // NOREPLACE leaves a mapping alone that a handler of the program's has made there since the
            // fork. Where it is refused for another reason nothing is there: a touch is a
            // SIGSEGV all the same, until the child has something put there.
            if is_lent(start) {
                continue;
            }
            match nothing_at(&window, libc::MAP_FIXED_NOREPLACE) {
                true => freed(&window),
                false => inherited_in(&window).for_each(|part| close_window(&part)),
            }
        }
    }

    /// Takes over, in a child, memory that was a window of the parent's and was
    /// inherited: it shows the parent's pages, and missing pages are
    /// missing. Nothing is protected, and writes go to copies. No thread has touched
    /// it yet: the kernel would have filled it with zeros.
    ///
    /// Until it [is the child's](Self::was_adopted) it counts as given away: if the window is given back before, what is there stays, for
    /// the caller to close.
    pub fn adopt(
        &self,
        range: Range<usize>,
        parents: &WindowLists<'_>,
    ) -> Result<Reservation, MmuError> {
        let known = parents.windows.get(&range.start);
        let &(_, protection) = known.ok_or(MmuError::Gone)?;
        let served = parents.given.served(&range);
        let window = self.register(range.clone(), &served, protection)?;
        self.given.parts_mut().give_all(&range);
        if parents.restricted.contains(&range.start) {
            self.restricted().insert(range.start);
        }
        served
            .iter()
            .for_each(|part| self.allow_inherit(part, false));
        Ok(window)
    }

    /// A window that was adopted has its memory: of it, only what the parent has given away is not the window's.
    pub fn was_adopted(&self, range: &Range<usize>, parents: &WindowLists<'_>) {
        let mut given = self.given.parts_mut();
        given.forget_window(range);
        given.take_over(&parents.given, range);
    }

    /// As [`close_window`], of a part of a window that was adopted. It is no part of the window any more.
    pub fn close_part(&self, part: &Range<usize>) {
        let lost = self.given.parts_mut().lose(part);
        lost.iter().for_each(close_window);
    }
}

/// Parts of a window that is only read, which are in memory that was inherited: nobody makes anonymous memory that cannot be
/// written to but us, nor has files of that name; nor, for windows that memory is moved into, without huge pages and
/// without a reserve.
fn inherited_in(window: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let smaps = std::fs::read_to_string("/proc/thread-self/smaps");
    let maps = smaps.or_else(|_| std::fs::read_to_string("/proc/thread-self/maps"));
    let maps = maps.unwrap_or_default();
    let (mut parts, mut writable) = (Vec::new(), None);
    for line in maps.lines() {
        if let Some((part, ours)) = mapping(line, window) {
            writable = None;
            match ours {
                Ours::Yes => parts.push(part),
                Ours::IfOpened => writable = Some(part),
                Ours::No => {}
            }
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |flag| flags.split_ascii_whitespace().any(|other| other == flag);
            parts.extend(writable.take().filter(|_| has("nh") && has("nr")));
        }
    }
    parts.into_iter()
}

/// Whether a mapping is a window's.
enum Ours {
    Yes,
    /// If it has the flags that windows have.
    IfOpened,
    No,
}

/// The part of a window that a line of `/proc/self/maps` is about; `None` if it is about none.
fn mapping(line: &str, window: &Range<usize>) -> Option<(Range<usize>, Ours)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    let protection = words.next();
    let is_anonymous = words.nth(2) == Some("0");
    let name = words.next().and_then(|name| name.strip_prefix("/memfd:"));
    let part = start.max(window.start)..end.min(window.end);
    let ours = match protection {
        _ if part.is_empty() => Ours::No,
        Some("r--p") if is_anonymous || name == Some(super::in_place::NAME) => Ours::Yes,
        Some("rw-p") if is_anonymous => Ours::IfOpened,
        _ => Ours::No,
    };
    Some((part, ours))
}

/// In a child: a touch of the window is a SIGSEGV from now on. Where the system refuses
/// every way to that, the process ends: missing pages would be zeros.
pub fn close_window(window: &Range<usize>) {
    let start = window.start as *mut c_void;
    if nothing_at(window, libc::MAP_FIXED) {
        return;
    }
    // SAFETY: a window that is not to be used any more. One that is not there at all, of
    // which mprotect says ENOMEM, munmap leaves as it is.
    let closed = unsafe {
        sync::kernel_calls::mprotect(start, window.len(), libc::PROT_NONE) == 0
            || sync::kernel_calls::munmap(start, window.len()) == 0
    };
    if !closed {
        const WHY: &str = "softfault: a child of fork could neither take over nor close memory \
                           that it inherited: it ends\n";
        // SAFETY: a constant; ends the process without running anything of the program's.
        unsafe {
            libc::write(libc::STDERR_FILENO, WHY.as_ptr().cast(), WHY.len());
            libc::_exit(CANNOT_CLOSE);
        }
    }
}

/// The exit code of a child that cannot vouch for its memory (`EX_OSERR`).
const CANNOT_CLOSE: c_int = 71;

/// Puts memory there that nobody may touch; false if that is refused.
fn nothing_at(range: &Range<usize>, fixed: c_int) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the place of a window, which is empty or is not to be used any more.
    unsafe {
        sync::kernel_calls::mmap(
            range.start as *mut c_void,
            range.len(),
            libc::PROT_NONE,
            flags | fixed,
            -1,
            0,
        ) != libc::MAP_FAILED
    }
}
