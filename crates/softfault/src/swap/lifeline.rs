//! Whether a child lives that may read slots that were in use at its fork.
//!
//! A mapping of a file tells, which only children have: it goes with their memory, however
//! they end, and when they exec, and no close of a descriptor reaches it. A grandchild has
//! it too: it reads its grandparent's slots. The parent has the file, a memfd without a
//! byte, and tries to seal it against writing: the kernel refuses that as long as a process
//! has a writable mapping of it.

use crate::generation::PerProcess;
use crate::table::Working;
use softfault_engine::PAGE_SIZE;
use softfault_engine::lock::Mutex;

/// Files at a time. Children beyond share the last.
const FILES: usize = 16;

/// The children that this process knows of.
struct Children {
    /// Files that children may have mapped.
    files: [Option<Working>; FILES],
    /// True once there was no file for a child: the slots in use then are kept for ever.
    unknown: bool,
}

/// A leaf but for the table's locks. At a fork only the forking thread has it: all other users
/// have a batch of reclaim, or the swap's own lock, which the fork waits for.
struct KnownChildren(Mutex<Children>);

impl Default for KnownChildren {
    fn default() -> Self {
        Self(Mutex::new(Children {
            files: [const { None }; FILES],
            unknown: false,
        }))
    }
}

static CHILDREN: PerProcess<KnownChildren> = PerProcess::new();

/// True if a child may live. No heap: faults ask, once there was a fork.
pub(super) fn live() -> bool {
    let children = CHILDREN.get().0.lock();
    children.unknown || children.files.iter().flatten().any(is_mapped)
}

/// True if somebody has it mapped. Once it is not, it never is again.
fn is_mapped(file: &Working) -> bool {
    let args = [
        libc::F_ADD_SEALS as usize,
        libc::F_SEAL_WRITE as usize,
        0,
        0,
        0,
    ];
    // If the call fails, a child may live.
    // SAFETY: no memory is involved.
    unsafe { file.call_guarded(libc::SYS_fcntl, args) }.is_err()
}

/// The mapping, for a child that is about to be made. The parent has it too, until the
/// child is made.
pub(crate) struct Lifeline(Option<usize>);

impl Lifeline {
    /// One at a time: a fork has a lock.
    pub(crate) fn new() -> Self {
        let mut children = CHILDREN.get().0.lock();
        for file in &mut children.files {
            if file.as_ref().is_some_and(|file| !is_mapped(file)) {
                *file = None;
            }
        }
        let free = children.files.iter().position(Option::is_none);
        if let Some(free) = free {
            children.files[free] = memfd().ok();
        }
        let file = &children.files[free.unwrap_or(FILES - 1)];
        let last = || children.files.iter().flatten().next_back();
        let mapped = file.as_ref().or_else(last).and_then(map);
        children.unknown |= mapped.is_none();
        Self(mapped)
    }

    /// In the parent: only children have it from now on.
    pub(crate) fn cut(self) {
        if let Some(start) = self.0 {
            // SAFETY: mapped by `new`, for this.
            unsafe { sync::kernel_calls::munmap(start as *mut libc::c_void, PAGE_SIZE) };
        }
    }

    /// In the child, which keeps it until it ends.
    pub(crate) fn keep(self) {}
}

fn memfd() -> Result<Working, i32> {
    let name = c"softfault-children".as_ptr() as usize;
    let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
    // SAFETY: a name that ends in zero.
    unsafe { Working::open_apart(libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0]) }
}

/// Maps it; nothing can be touched there.
fn map(file: &Working) -> Option<usize> {
    let (none, shared) = (libc::PROT_NONE as usize, libc::MAP_SHARED as usize);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let mapped = unsafe {
        file.run(libc::SYS_mmap, |fd| {
            [0, PAGE_SIZE, none, shared, fd as usize, 0]
        })
    };
    mapped.ok()
}
