//! The rights of a server: those of the thread that asks it to open something. libc tells it of no
//! `setuid`, which changes a thread at a time.

use super::raw;
use core::ffi::c_long;

/// Rights of a thread. Zeros are root without capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Credentials {
    /// Real, effective, saved.
    users: [u32; 3],
    groups: [u32; 3],
    /// Effective, permitted, inheritable; and again, of those above 31.
    capabilities: [[u32; 3]; 2],
}

impl Credentials {
    /// Of servers of which some have others than the rest: no thread has such users.
    pub(super) const DIFFERENT: Self = Self {
        users: [u32::MAX; 3],
        groups: [u32::MAX; 3],
        capabilities: [[0; 3]; 2],
    };
}

/// `_LINUX_CAPABILITY_VERSION_3`, and the calling thread.
const OF_THIS_THREAD: [u32; 2] = [0x2008_0522, 0];

/// An address as an argument.
fn at<T: ?Sized>(of: &T) -> usize {
    core::ptr::from_ref(of).cast::<u8>() as usize
}

/// A call of memory that lives until it returns.
type Run<'a> = dyn Fn(c_long, [usize; 3]) -> Result<usize, i32> + 'a;

/// The calling thread's supplementary groups.
pub(super) fn supplementary_groups() -> Vec<libc::gid_t> {
    // SAFETY: asks for their number, then fills as many.
    unsafe {
        let count = libc::getgroups(0, core::ptr::null_mut()).max(0);
        let mut groups = vec![0; count as usize];
        let filled = libc::getgroups(count, groups.as_mut_ptr()).max(0);
        groups.truncate(filled as usize);
        groups
    }
}

impl Credentials {
    /// The calling thread's.
    pub(super) fn here() -> Self {
        let mut own = Self::default();
        let three =
            |of: &mut [u32; 3]| of.each_mut().map(|word| core::ptr::from_mut(word) as usize);
        let capabilities = [
            at(&OF_THIS_THREAD),
            own.capabilities.as_mut_ptr() as usize,
            0,
        ];
        let calls = [
            (libc::SYS_getresuid, three(&mut own.users)),
            (libc::SYS_getresgid, three(&mut own.groups)),
            (libc::SYS_capget, capabilities),
        ];
        for (number, [a, b, c]) in calls {
            // SAFETY: the structures are those that these calls fill.
            unsafe { raw::call(number, &[a, b, c, 0, 0, 0]) };
        }
        own
    }

    /// Gives them to the thread that `run` lets do system calls, as far as it may take them:
    /// it may give up all that it has. Does not use the heap.
    pub(super) fn give(&self, supplementary: &[libc::gid_t], run: &Run<'_>) {
        // A thread that becomes another user makes the process's memory secret.
        // SAFETY: only asks.
        let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
        let [users, groups] = [self.users, self.groups].map(|three| three.map(|id| id as usize));
        // A refused call does no harm: the thread must not have that right, or has it already.
        let _ = run(
            libc::SYS_setgroups,
            [supplementary.len(), at(supplementary), 0],
        );
        let _ = run(libc::SYS_setresgid, groups);
        let _ = run(libc::SYS_setresuid, users);
        let _ = run(
            libc::SYS_capset,
            [at(&OF_THIS_THREAD), at(&self.capabilities), 0],
        );
        if dumpable == 1 {
            // SAFETY: as it was.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
        }
    }
}
