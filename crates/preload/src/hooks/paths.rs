//! Calls that hand a path or another name to the kernel, where faults are signals (`again.rs`): it may be in a file that
//! was taken.

use super::again::{reading, with_text};
use super::next::hooks;
use libc::{
    DIR, FILE, c_char, c_int, c_long, c_uint, c_ulong, c_void, dev_t, gid_t, mode_t, off_t, size_t,
    ssize_t, stat as Stat, statfs as Statfs, statvfs as Statvfs, statx as Statx, timespec, timeval,
    uid_t, utimbuf,
};

const TIMES: usize = 2 * size_of::<timespec>();
/// Bytes of a handle of a file, at most, with its header.
const HANDLE: usize = 8 + 128;

reading! {
    /// lchmod(3).
    fn lchmod(path: *const c_char, mode: mode_t) -> c_int => Text(path);
    /// ftok(3).
    fn ftok(path: *const c_char, id: c_int) -> c_int => Text(path);
    /// setmntent(3).
    fn setmntent(path: *const c_char, how: *const c_char) -> *mut FILE => Text(path);
    /// mount_setattr(2).
    fn mount_setattr(at: c_int, path: *const c_char, flags: c_uint, with: *mut c_void, bytes: size_t) -> c_int => Text(path), Bytes(with, bytes);
    /// mknod(2), as programs for glibc before 2.33 call it.
    fn __xmknod(version: c_int, path: *const c_char, mode: mode_t, device: *const dev_t) -> c_int => Text(path);
    /// mknodat(2), the same.
    fn __xmknodat(version: c_int, at: c_int, path: *const c_char, mode: mode_t, device: *const dev_t) -> c_int => Text(path);
    /// open(2). In C it has the last argument only where a file may be made: otherwise it is not looked at.
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int => Text(path);
    /// The same, as below, by its other name.
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int => Text(path);
    /// openat(2).
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int => Text(path);
    /// openat(2).
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int => Text(path);
    /// creat(2).
    fn creat(path: *const c_char, mode: mode_t) -> c_int => Text(path);
    /// creat(2).
    fn creat64(path: *const c_char, mode: mode_t) -> c_int => Text(path);
    /// fopen(3).
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE => Text(path);
    /// fopen(3).
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE => Text(path);
    /// opendir(3).
    fn opendir(path: *const c_char) -> *mut DIR => Text(path);
    /// access(2).
    fn access(path: *const c_char, how: c_int) -> c_int => Text(path);
    /// euidaccess(3).
    fn euidaccess(path: *const c_char, how: c_int) -> c_int => Text(path);
    /// euidaccess(3).
    fn eaccess(path: *const c_char, how: c_int) -> c_int => Text(path);
    /// faccessat(2).
    fn faccessat(at: c_int, path: *const c_char, how: c_int, flags: c_int) -> c_int => Text(path);
    /// stat(2).
    fn stat(path: *const c_char, to: *mut Stat) -> c_int => Text(path), Into(to.cast(), size_of::<Stat>());
    /// stat(2).
    fn stat64(path: *const c_char, to: *mut Stat) -> c_int => Text(path), Into(to.cast(), size_of::<Stat>());
    /// lstat(2).
    fn lstat(path: *const c_char, to: *mut Stat) -> c_int => Text(path), Into(to.cast(), size_of::<Stat>());
    /// lstat(2).
    fn lstat64(path: *const c_char, to: *mut Stat) -> c_int => Text(path), Into(to.cast(), size_of::<Stat>());
    /// fstatat(2).
    fn fstatat(at: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int => Text(path), Into(to.cast(), size_of::<Stat>());
    /// fstatat(2).
    fn fstatat64(at: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int => Text(path), Into(to.cast(), size_of::<Stat>());
    /// stat(2), as programs for glibc before 2.33 call it.
    fn __xstat(version: c_int, path: *const c_char, to: *mut Stat) -> c_int => Text(path), Into(to.cast(), size_of::<Stat>());
    /// The same.
    fn __xstat64(version: c_int, path: *const c_char, to: *mut Stat) -> c_int => Text(path), Into(to.cast(), size_of::<Stat>());
    /// lstat(2), the same.
    fn __lxstat(version: c_int, path: *const c_char, to: *mut Stat) -> c_int => Text(path), Into(to.cast(), size_of::<Stat>());
    /// The same.
    fn __lxstat64(version: c_int, path: *const c_char, to: *mut Stat) -> c_int => Text(path), Into(to.cast(), size_of::<Stat>());
    /// fstatat(2), the same.
    fn __fxstatat(version: c_int, at: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int => Text(path), Into(to.cast(), size_of::<Stat>());
    /// The same.
    fn __fxstatat64(version: c_int, at: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int => Text(path), Into(to.cast(), size_of::<Stat>());
    /// statx(2).
    fn statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut Statx) -> c_int => Text(path), Into(to.cast(), size_of::<Statx>());
    /// statfs(2).
    fn statfs(path: *const c_char, to: *mut Statfs) -> c_int => Text(path), Into(to.cast(), size_of::<Statfs>());
    /// statfs(2).
    fn statfs64(path: *const c_char, to: *mut Statfs) -> c_int => Text(path), Into(to.cast(), size_of::<Statfs>());
    /// statvfs(3).
    fn statvfs(path: *const c_char, to: *mut Statvfs) -> c_int => Text(path), Into(to.cast(), size_of::<Statvfs>());
    /// statvfs(3).
    fn statvfs64(path: *const c_char, to: *mut Statvfs) -> c_int => Text(path), Into(to.cast(), size_of::<Statvfs>());
    /// readlink(2).
    fn readlink(path: *const c_char, to: *mut c_char, bytes: size_t) -> ssize_t => Text(path), Into(to.cast(), bytes);
    /// readlinkat(2).
    fn readlinkat(at: c_int, path: *const c_char, to: *mut c_char, bytes: size_t) -> ssize_t => Text(path), Into(to.cast(), bytes);
    /// unlink(2).
    fn unlink(path: *const c_char) -> c_int => Text(path);
    /// unlinkat(2).
    fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int => Text(path);
    /// remove(3).
    fn remove(path: *const c_char) -> c_int => Text(path);
    /// rmdir(2).
    fn rmdir(path: *const c_char) -> c_int => Text(path);
    /// mkdir(2).
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int => Text(path);
    /// mkdirat(2).
    fn mkdirat(at: c_int, path: *const c_char, mode: mode_t) -> c_int => Text(path);
    /// mkfifo(3).
    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int => Text(path);
    /// mkfifoat(3).
    fn mkfifoat(at: c_int, path: *const c_char, mode: mode_t) -> c_int => Text(path);
    /// mknod(2).
    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int => Text(path);
    /// mknodat(2).
    fn mknodat(at: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int => Text(path);
    /// chdir(2).
    fn chdir(path: *const c_char) -> c_int => Text(path);
    /// chroot(2).
    fn chroot(path: *const c_char) -> c_int => Text(path);
    /// chmod(2).
    fn chmod(path: *const c_char, mode: mode_t) -> c_int => Text(path);
    /// fchmodat(2).
    fn fchmodat(at: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int => Text(path);
    /// chown(2).
    fn chown(path: *const c_char, user: uid_t, group: gid_t) -> c_int => Text(path);
    /// lchown(2).
    fn lchown(path: *const c_char, user: uid_t, group: gid_t) -> c_int => Text(path);
    /// fchownat(2).
    fn fchownat(at: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int => Text(path);
    /// truncate(2).
    fn truncate(path: *const c_char, bytes: off_t) -> c_int => Text(path);
    /// truncate(2).
    fn truncate64(path: *const c_char, bytes: off_t) -> c_int => Text(path);
    /// link(2).
    fn link(from: *const c_char, to: *const c_char) -> c_int => Text(from), Text(to);
    /// linkat(2).
    fn linkat(at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_int) -> c_int => Text(from), Text(to);
    /// symlink(2).
    fn symlink(from: *const c_char, to: *const c_char) -> c_int => Text(from), Text(to);
    /// symlinkat(2).
    fn symlinkat(from: *const c_char, at: c_int, to: *const c_char) -> c_int => Text(from), Text(to);
    /// rename(2).
    fn rename(from: *const c_char, to: *const c_char) -> c_int => Text(from), Text(to);
    /// renameat(2).
    fn renameat(at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> c_int => Text(from), Text(to);
    /// renameat2(2).
    fn renameat2(at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_uint) -> c_int => Text(from), Text(to);
    /// utime(2).
    fn utime(path: *const c_char, times: *const utimbuf) -> c_int => Text(path), Bytes(times.cast(), size_of::<utimbuf>());
    /// utimes(2).
    fn utimes(path: *const c_char, times: *const timeval) -> c_int => Text(path), Bytes(times.cast(), TIMES);
    /// lutimes(3).
    fn lutimes(path: *const c_char, times: *const timeval) -> c_int => Text(path), Bytes(times.cast(), TIMES);
    /// utimensat(2).
    fn utimensat(at: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int => Text(path), Bytes(times.cast(), TIMES);
    /// futimesat(2).
    fn futimesat(at: c_int, path: *const c_char, times: *const timeval) -> c_int => Text(path), Bytes(times.cast(), TIMES);
    /// futimes(3).
    fn futimes(fd: c_int, times: *const timeval) -> c_int => Bytes(times.cast(), TIMES);
    /// futimens(3).
    fn futimens(fd: c_int, times: *const timespec) -> c_int => Bytes(times.cast(), TIMES);
    /// getxattr(2).
    fn getxattr(path: *const c_char, name: *const c_char, to: *mut c_void, bytes: size_t) -> ssize_t => Text(path), Text(name), Into(to.cast(), bytes);
    /// lgetxattr(2).
    fn lgetxattr(path: *const c_char, name: *const c_char, to: *mut c_void, bytes: size_t) -> ssize_t => Text(path), Text(name), Into(to.cast(), bytes);
    /// fgetxattr(2).
    fn fgetxattr(fd: c_int, name: *const c_char, to: *mut c_void, bytes: size_t) -> ssize_t => Text(name), Into(to.cast(), bytes);
    /// setxattr(2).
    fn setxattr(path: *const c_char, name: *const c_char, from: *const c_void, bytes: size_t, flags: c_int) -> c_int => Text(path), Text(name), Bytes(from, bytes);
    /// lsetxattr(2).
    fn lsetxattr(path: *const c_char, name: *const c_char, from: *const c_void, bytes: size_t, flags: c_int) -> c_int => Text(path), Text(name), Bytes(from, bytes);
    /// fsetxattr(2).
    fn fsetxattr(fd: c_int, name: *const c_char, from: *const c_void, bytes: size_t, flags: c_int) -> c_int => Text(name), Bytes(from, bytes);
    /// listxattr(2).
    fn listxattr(path: *const c_char, to: *mut c_char, bytes: size_t) -> ssize_t => Text(path), Into(to.cast(), bytes);
    /// llistxattr(2).
    fn llistxattr(path: *const c_char, to: *mut c_char, bytes: size_t) -> ssize_t => Text(path), Into(to.cast(), bytes);
    /// removexattr(2).
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int => Text(path), Text(name);
    /// lremovexattr(2).
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int => Text(path), Text(name);
    /// fremovexattr(2).
    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int => Text(name);
    /// inotify_add_watch(2).
    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int => Text(path);
    /// mount(2).
    fn mount(from: *const c_char, to: *const c_char, kind: *const c_char, flags: c_ulong, with: *const c_void) -> c_int => Text(from), Text(to), Text(kind), Bytes(with, 1);
    /// umount2(2).
    fn umount2(path: *const c_char, flags: c_int) -> c_int => Text(path);
    /// umount(2).
    fn umount(path: *const c_char) -> c_int => Text(path);
    /// pivot_root(2).
    fn pivot_root(to: *const c_char, before: *const c_char) -> c_int => Text(to), Text(before);
    /// move_mount(2).
    fn move_mount(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_uint) -> c_int => Text(from), Text(to);
    /// open_tree(2).
    fn open_tree(at: c_int, path: *const c_char, flags: c_uint) -> c_int => Text(path);
    /// fspick(2).
    fn fspick(at: c_int, path: *const c_char, flags: c_uint) -> c_int => Text(path);
    /// fsopen(2).
    fn fsopen(kind: *const c_char, flags: c_uint) -> c_int => Text(kind);
    /// acct(2).
    fn acct(path: *const c_char) -> c_int => Text(path);
    /// swapon(2).
    fn swapon(path: *const c_char, flags: c_int) -> c_int => Text(path);
    /// swapoff(2).
    fn swapoff(path: *const c_char) -> c_int => Text(path);
    /// fanotify_mark(2).
    fn fanotify_mark(fd: c_int, flags: c_uint, mask: u64, at: c_int, path: *const c_char) -> c_int => Text(path);
    /// name_to_handle_at(2): how many bytes it may be long is in front of the handle.
    fn name_to_handle_at(at: c_int, path: *const c_char, handle: *mut c_void, mount: *mut c_int, flags: c_int) -> c_int
        => Text(path), Into(handle, HANDLE), Into(mount.cast(), size_of::<c_int>());
    /// open_by_handle_at(2).
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int => Bytes(handle, HANDLE);
    /// mq_open(3). In C it has the last two arguments only where a queue may be made.
    fn mq_open(name: *const c_char, flags: c_int, mode: mode_t, with: *const libc::mq_attr) -> c_int => Text(name), Bytes(with.cast(), size_of::<libc::mq_attr>());
    /// mq_unlink(3).
    fn mq_unlink(name: *const c_char) -> c_int => Text(name);
    /// memfd_create(2).
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int => Text(name);
    /// pathconf(3).
    fn pathconf(path: *const c_char, name: c_int) -> c_long => Text(path);
}

mod copied {
    use super::*;

    hooks! {
        /// freopen(3), which closes the stream whether or not it can open the path.
        fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = |next| {
            with_text_or_none(path, |path| next(path, mode, stream))
        };

        /// freopen(3), by its other name.
        fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = |next| {
            with_text_or_none(path, |path| next(path, mode, stream))
        };

        /// scandir(3).
        fn scandir(path: *const c_char, to: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int = |next| {
            with_text(path, |path| next(path, to, filter, order))
        };

        /// tempnam(3): it takes a directory that the kernel cannot read for none.
        fn tempnam(directory: *const c_char, prefix: *const c_char) -> *mut c_char = |next| {
            with_text(directory, |directory| next(directory, prefix))
        };

        /// scandir(3), by its other name.
        fn scandir64(path: *const c_char, to: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int = |next| {
            with_text(path, |path| next(path, to, filter, order))
        };
    }

    /// As [`with_text`], of a path that may be null.
    ///
    /// # Safety
    /// Any other may be read up to its zero.
    unsafe fn with_text_or_none(
        path: *const c_char,
        call: impl FnOnce(*const c_char) -> *mut FILE,
    ) -> *mut FILE {
        match path.is_null() {
            true => call(path),
            // SAFETY: the caller's promise.
            false => unsafe { with_text(path, call) },
        }
    }
}

/// Looks all of them up.
pub fn find_all() {
    find();
    copied::find();
}
