"""Holds this process's system calls until another thread of Python has run: a call that waits with the interpreter's lock never ends.

The kernel asks a thread of Python about each system call that may wait (seccomp_unotify(2)), and the call goes on once that thread has
answered, for which it needs the interpreter's lock. So no test that uses this looks at a clock.
"""

import ctypes
import errno
import faulthandler
import fcntl
import os
import platform
import struct
import threading

#: System calls that wait for a disk, by their numbers on x86-64. Python itself calls none of them with its lock.
CALLS = {
    "close": 3, "pread64": 17, "pwrite64": 18, "msync": 26, "fsync": 74, "fdatasync": 75, "ftruncate": 77, "io_getevents": 208, "io_submit": 209,
    "sync_file_range": 277, "fallocate": 285, "preadv": 295, "pwritev": 296, "preadv2": 327, "pwritev2": 328, "statx": 332,
    "io_pgetevents": 333, "io_uring_enter": 426,
}  # fmt: skip
_NAMES = {number: name for name, number in CALLS.items()}

_RECV, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_PR_SET_NO_NEW_PRIVS = 38
_SYS_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER = 317, 1, 1 << 3
_X86_64, _ALLOW, _ASK = 0xC000003E, 0x7FFF0000, 0x7FC00000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06


class Unsupported(Exception):
    pass


class Held:
    """The calls of the thread that made this, as (name, thread), in their order. Threads that it makes later are held as well.

    ``meanwhile``, if there is one, is called with the name while the system call waits.
    """

    def __init__(self):
        self.calls = []
        self.meanwhile = None
        self._listener, installed = None, threading.Event()
        if platform.machine() != "x86_64":
            raise Unsupported("the numbers of system calls are those of x86-64")
        # Its own system calls are not held, since it is there before the filter is.
        thread = threading.Thread(target=self._answer, args=(installed,), daemon=True)
        thread.start()
        self._listener = _install()
        installed.set()
        # If the lock is held after all, this ends the process, and says where. As long as a busy machine may need.
        faulthandler.dump_traceback_later(270, exit=True)

    def _answer(self, installed):
        installed.wait()
        while True:
            asked = bytearray(80)
            try:
                fcntl.ioctl(self._listener, _RECV, asked)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                raise
            ask, thread, _, number = struct.unpack_from("QIIi", asked)
            self.calls.append((_NAMES[number], thread))
            try:
                if self.meanwhile is not None:
                    self.meanwhile(_NAMES[number])
            finally:
                try:
                    fcntl.ioctl(self._listener, _SEND, bytearray(struct.pack("QqiI", ask, 0, 0, _CONTINUE)))
                except FileNotFoundError:
                    pass  # A signal has interrupted the call, and it is made again.


def _install():
    """A filter that asks about the calls; the descriptor by which the kernel asks."""
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = list(CALLS.values())
    rules = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _X86_64), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 0)]
    rules += [(_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    rules += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ASK)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code)))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    listener = libc.syscall(_SYS_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, program)
    if listener < 0:
        raise Unsupported(f"seccomp: {os.strerror(ctypes.get_errno())}")
    return listener
