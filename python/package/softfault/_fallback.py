"""The interface of the native part over the standard library's mmap: for systems without softfault."""

from __future__ import annotations

import errno
import mmap as _standard
import os

_STEP = 1 << 20

#: What the native part counts, and here nobody.
_COUNTERS = (
    "budget_bytes",
    "resident_bytes",
    "peak_bytes",
    "faults",
    "minor_faults",
    "major_faults",
    "failed_touches",
    "memory_waits",
    "readahead_pages",
    "readahead_used",
    "readahead_dropped",
    "anonymous_faults",
    "bytes_read",
    "read_cached_bytes",
    "read_direct_bytes",
    "read_errors",
    "dirty_bytes",
    "written_back_bytes",
    "write_errors",
    "evicted",
    "refaults",
    "windows",
    "idle_windows",
    "swap_pages_out",
    "swap_pages_in",
    "swap_write_errors",
    "swap_full",
    "swap_slots_used",
    "swap_slots_total",
    "kernel_small_maps",
    "kernel_shared_maps",
    "kernel_shared_bytes",
    "kernel_switches",
    "kernel_other_maps",
)


class Engine:
    """A budget without effect."""

    def __init__(self, *, memory=None, fallback="kernel", **_options):
        if fallback == "error":
            raise OSError("softfault runs on Linux only")
        self._memory = memory

    def set_memory(self, size):
        self._memory = size

    def close_idle(self):
        pass

    def stats(self):
        return {**dict.fromkeys(_COUNTERS, 0), "budget_bytes": self._memory or 0, "kernel_fallback": True}


def _in_steps(size, step):
    """Bytes that went through, as of the native part: what a descriptor that does not wait has taken or given counts."""
    done = 0
    while done < size:
        try:
            count = step(done, min(_STEP, size - done))
        except BlockingIOError:
            if done == 0:
                raise
            break
        if count == 0:
            break
        done += count
    return done


class mmap(_standard.mmap):
    """The standard library's mmap, with softfault's methods."""

    __module__ = "softfault"

    def __new__(cls, *arguments, engine=None, **named):
        return super().__new__(cls, *arguments, **named)

    @property
    def managed(self):
        len(self)
        return False

    def readinto(self, buffer):
        with _flat(buffer) as room:
            data = self.read(len(room))
            room[: len(data)] = data
        return len(data)

    def _part(self, start, length):
        if length is None:
            length = len(self) - start
        if start < 0 or length < 0 or start + length > len(self):
            raise ValueError("the range is not within the map")
        return start, start + length

    def fault_in(self, ranges, timeout=None):
        for start, stop in ranges:
            self._part(start, stop - start)

    def prefetch(self, start=0, length=None):
        self._part(start, length)

    def populate(self, start=0, length=None, *, write=False, progress=None):
        start, stop = self._part(start, length)
        if write:
            with memoryview(self) as view:
                if view.readonly:
                    raise TypeError("mmap can't modify a readonly memory map.")
        for at in range(start, stop, _STEP):
            end = min(at + _STEP, stop)
            self[at:end]
            if progress is not None:
                progress(end - start, stop - start)

    def write_to(self, fd, start=0, length=None):
        start, stop = self._part(start, length)
        return _in_steps(stop - start, lambda done, size: os.write(fd, self[start + done : start + done + size]))

    def read_from(self, fd, start=0, length=None):
        start, stop = self._part(start, length)

        def step(done, size):
            data = os.read(fd, size)
            self[start + done : start + done + len(data)] = data
            return len(data)

        return _in_steps(stop - start, step)

    def lock(self):
        raise OSError(errno.EOPNOTSUPP, "pages cannot be kept in memory without the native part")

    def unlock(self):
        pass


def set_current(_function):
    pass


def reinstall_handler():
    pass


def give_back_for_others():
    pass


def is_served(_start, _length):
    return False


def place_of(buffer):
    with memoryview(buffer) as view:
        return 0, view.nbytes


def bring_in(_ranges, _timeout=None):
    pass


def _flat(buffer):
    """A buffer's bytes, which are in C order: that of the native part's errors."""
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise BufferError("the buffer is not C-contiguous")
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def write_from(fd, buffer):
    with _flat(buffer) as view:
        return _in_steps(len(view), lambda done, size: os.write(fd, view[done : done + size]))


def read_into(fd, buffer):
    with _flat(buffer) as view:

        def step(done, size):
            data = os.read(fd, size)
            view[done : done + len(data)] = data
            return len(data)

        return _in_steps(len(view), step)


def get(buffer, offset, length):
    with _flat(buffer) as view:
        return bytes(view[offset : offset + length])


def put(buffer, offset, data):
    with _flat(buffer) as view:
        view[offset : offset + len(data)] = data


def parse_size(text):
    number = text.strip().upper()
    shift = {"K": 10, "M": 20, "G": 30, "T": 40}.get(number[-1:], 0)
    digits = number[:-1] if shift else number
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text!r} is no size: a size is a whole number of bytes, or one followed by K, M, G or T")
    return int(digits) << shift
