//! Calls that execute a program, where faults are signals (`again.rs`): its path, its arguments, its environment.

use super::again::{Reads, again_by_error, reading, with_text, with_text_copied};
use super::next::hooks;
use crate::marked;
use core::ptr;
use libc::{FILE, c_char, c_int, c_void, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

type Texts = *const *const c_char;

unsafe extern "C" {
    /// The C library's: the environment of programs that are given no other.
    static environ: Texts;
}

pub mod executed {
    use super::*;

    reading! {
        /// execve(2).
        fn execve(path: *const c_char, arguments: Texts, environment: Texts) -> c_int => Text(path), Texts(arguments), Texts(environment);
        /// execveat(2).
        fn execveat(at: c_int, path: *const c_char, arguments: Texts, environment: Texts, flags: c_int) -> c_int => Text(path), Texts(arguments), Texts(environment);
        /// fexecve(3).
        fn fexecve(fd: c_int, arguments: Texts, environment: Texts) -> c_int => Texts(arguments), Texts(environment);
        /// execv(3).
        fn execv(path: *const c_char, arguments: Texts) -> c_int => Text(path), Texts(arguments), Texts(environ);
        /// execvp(3).
        fn execvp(path: *const c_char, arguments: Texts) -> c_int => Text(path), Texts(arguments), Texts(environ);
        /// execvpe(3).
        fn execvpe(path: *const c_char, arguments: Texts, environment: Texts) -> c_int => Text(path), Texts(arguments), Texts(environment);
    }
}

hooks! {
    /// posix_spawn(3).
    fn posix_spawn(child: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Texts, environment: Texts) -> c_int = |next| {
        let reads = [Reads::Texts(arguments), Reads::Texts(environment)];
        spawned(child, path, (actions.cast(), attributes.cast()), |child, path, actions, attributes| {
            again_by_error(&reads, || next(child, path, actions.cast(), attributes.cast(), arguments, environment))
        })
    };

    /// posix_spawnp(3).
    fn posix_spawnp(child: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Texts, environment: Texts) -> c_int = |next| {
        let reads = [Reads::Texts(arguments), Reads::Texts(environment)];
        spawned(child, path, (actions.cast(), attributes.cast()), |child, path, actions, attributes| {
            again_by_error(&reads, || next(child, path, actions.cast(), attributes.cast(), arguments, environment))
        })
    };

    /// system(3), which does not report missing memory.
    fn system(command: *const c_char) -> c_int = |next| {
        with_text(command, |command| next(command))
    };

    /// popen(3), the same. Its child reads the command while the list of such streams is locked, which newer C libraries lock at a fork.
    fn popen(command: *const c_char, how: *const c_char) -> *mut FILE = |next| {
        with_text_copied(command, |command| next(command, how))
    };
}

/// posix_spawn(3), with copies of what it uses where a touch of missing memory would end a process: it stores the child's number with all
/// signals blocked, and the child, in which SIGBUS has its default action, reads the path, the actions and the attributes.
///
/// # Safety
/// As of posix_spawn(3).
unsafe fn spawned(
    child: *mut pid_t,
    path: *const c_char,
    (actions, attributes): (*const posix_spawn_file_actions_t, *const posix_spawnattr_t),
    spawn: impl Fn(
        *mut pid_t,
        *const c_char,
        *const posix_spawn_file_actions_t,
        *const posix_spawnattr_t,
    ) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise: they are whole or NULL, and nobody changes them during the call.
    unsafe {
        let actions = actions.as_ref().map(|actions| ptr::read(actions));
        let attributes = attributes.as_ref().map(|attributes| ptr::read(attributes));
        let actions = actions.as_ref().map_or(ptr::null(), ptr::from_ref);
        let attributes = attributes.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mut made = 0;
        // Its own, where it can be: a handler of SIGCHLD looks there for the number.
        let is_cold = marked::may_be_taken(child as usize, size_of::<pid_t>());
        let to = if is_cold { &raw mut made } else { child };
        let answer = with_text_copied(path, |path| spawn(to, path, actions, attributes));
        if answer == 0 && is_cold {
            child.write(made);
        }
        answer
    }
}

/// Looks all of them up.
pub fn find_all() {
    find();
    executed::find();
}
