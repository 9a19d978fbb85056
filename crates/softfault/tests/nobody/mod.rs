//! Processes that are root's, or were.

#![allow(dead_code)]

pub const NOBODY: u32 = 65534;

pub fn is_root() -> bool {
    // SAFETY: only asks.
    unsafe { libc::geteuid() == 0 }
}

/// Gives up being root for good, in this process.
pub fn become_nobody() {
    if !is_root() {
        println!("not root: this user is the ordinary one");
        return;
    }
    // SAFETY: changes the user of this process.
    unsafe {
        assert_eq!(libc::setgroups(0, core::ptr::null()), 0);
        assert_eq!(libc::setgid(NOBODY), 0);
        assert_eq!(libc::setuid(NOBODY), 0);
    }
}
