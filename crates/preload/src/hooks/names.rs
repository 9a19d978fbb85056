//! Calls by names that the C library has beside those of its headers: old programs are linked with some, and libraries that
//! stand in front of it call others.

use super::next::hooks;
use super::receive::{self, structures};
use super::{arguments, direct, memory, paths, process, programs, signals};
use libc::{
    FILE, c_char, c_int, c_void, iovec, mode_t, nfds_t, off_t, pid_t, pollfd, size_t, sockaddr,
    socklen_t, ssize_t, statfs, timespec, timeval,
};

hooks! {
    /// read(2).
    fn __read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t = |_next| direct::read(fd, to, bytes);

    /// pread(2).
    fn __pread64(fd: c_int, to: *mut c_void, bytes: size_t, at: off_t) -> ssize_t = |_next| direct::pread(fd, to, bytes, at);

    /// pread(2).
    fn pread64(fd: c_int, to: *mut c_void, bytes: size_t, at: off_t) -> ssize_t = |_next| direct::pread(fd, to, bytes, at);

    /// preadv(2).
    fn preadv64(fd: c_int, vectors: *const iovec, count: c_int, at: off_t) -> ssize_t = |_next| direct::preadv(fd, vectors, count, at);

    /// preadv2(2).
    fn preadv64v2(fd: c_int, vectors: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = |_next| direct::preadv2(fd, vectors, count, at, flags);

    /// write(2).
    fn __write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t = |_next| memory::write(fd, from, bytes);

    /// pwrite(2).
    fn __pwrite64(fd: c_int, from: *const c_void, bytes: size_t, at: off_t) -> ssize_t = |_next| memory::pwrite64(fd, from, bytes, at);

    /// send(2).
    fn __send(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> ssize_t = |_next| memory::send(fd, from, bytes, flags);

    /// connect(2).
    fn __connect(fd: c_int, to: *const sockaddr, bytes: socklen_t) -> c_int = |_next| arguments::connect(fd, to, bytes);

    /// poll(2).
    fn __poll(all: *mut pollfd, count: nfds_t, until: c_int) -> c_int = |_next| signals::poll(all, count, until);

    /// fcntl(2).
    fn __fcntl(fd: c_int, how: c_int, with: *mut c_void) -> c_int = |_next| arguments::fcntl(fd, how, with);

    /// pipe(2).
    fn __pipe(to: *mut c_int) -> c_int = |_next| arguments::pipe(to);

    /// open(2).
    fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |_next| paths::open(path, flags, mode);

    /// open(2).
    fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |_next| paths::open64(path, flags, mode);

    /// statfs(2).
    fn __statfs(path: *const c_char, to: *mut statfs) -> c_int = |_next| paths::statfs(path, to);

    /// nanosleep(2).
    fn __nanosleep(time: *const timespec, left: *mut timespec) -> c_int = |_next| structures::nanosleep(time, left);

    /// wait(2).
    fn __wait(status: *mut c_int) -> pid_t = |_next| structures::wait(status);

    /// waitpid(2).
    fn __waitpid(child: pid_t, status: *mut c_int, flags: c_int) -> pid_t = |_next| structures::waitpid(child, status, flags);

    /// select(2).
    fn __select(count: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void, until: *mut timeval) -> c_int = |_next| {
        structures::select(count, read, write, other, until)
    };

    /// fread(3).
    fn _IO_fread(to: *mut c_void, each: size_t, count: size_t, from: *mut FILE) -> size_t = |_next| receive::fread(to, each, count, from);

    /// fwrite(3).
    fn _IO_fwrite(from: *const c_void, each: size_t, count: size_t, to: *mut FILE) -> size_t = |_next| memory::fwrite(from, each, count, to);

    /// fputs(3).
    fn _IO_fputs(text: *const c_char, to: *mut FILE) -> c_int = |_next| memory::fputs(text, to);

    /// puts(3).
    fn _IO_puts(text: *const c_char) -> c_int = |_next| memory::puts(text);

    /// fopen(3).
    fn _IO_fopen(path: *const c_char, how: *const c_char) -> *mut FILE = |_next| paths::fopen(path, how);

    /// popen(3).
    fn _IO_popen(command: *const c_char, how: *const c_char) -> *mut FILE = |_next| programs::popen(command, how);

    /// clone(2).
    fn __clone(act: extern "C" fn(*mut c_void) -> c_int, stack: *mut c_void, flags: c_int, with: *mut c_void, parent_id: *mut pid_t, tls: *mut c_void, child_id: *mut pid_t) -> c_int = |_next| {
        process::clone(act, stack, flags, with, parent_id, tls, child_id)
    };

    /// setmntent(3).
    fn __setmntent(path: *const c_char, how: *const c_char) -> *mut FILE = |_next| paths::setmntent(path, how);
}
