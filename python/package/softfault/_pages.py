"""Many ranges at once, and system calls on memory that may not be resident: without the interpreter's lock."""

from __future__ import annotations

import errno
import io
import os
import sys

from ._native_or_fallback import native


def _place(buffer):
    """A buffer's address and its bytes, the gaps of an array included."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(buffer, numpy.ndarray):
        if buffer.size == 0:
            return 0, 0
        first, end = _bounds_of(numpy)(buffer)
        return first, end - first
    return native.place_of(buffer)


def _bounds_of(numpy):
    """numpy's ``byte_bounds``, which numpy 2.0 has moved."""
    moved = getattr(numpy.lib, "array_utils", None)
    return numpy.byte_bounds if moved is None else moved.byte_bounds


def _is_one(ranges):
    """True for a buffer, and False for several."""
    if isinstance(ranges, (list, tuple)):
        return False
    try:
        memoryview(ranges).release()
    except TypeError:
        return False
    except ValueError:
        # Of elements that a memoryview does not know, such as numpy's dates.
        return True
    return True


def fault_in(ranges, timeout=None):
    """Brings buffers of maps into memory, with many reads in flight; other Python threads run meanwhile.

    ``ranges`` is an array, a view or another buffer of a map, or a list of them. A failed read raises ``OSError``; a range
    that is not in memory after ``timeout`` seconds raises ``TimeoutError``. The pages may be evicted again: if the ranges
    are larger than the budget, the first pages go before the last ones come.

    >>> import numpy, softfault
    >>> a = softfault.empty((1000, 512))
    >>> softfault.fault_in([a[3], a[997]])
    """
    buffers = [ranges] if _is_one(ranges) else list(ranges)
    native.bring_in([_place(buffer) for buffer in buffers], timeout)


def take(array, indices, out=None):
    """Rows of an array, as ``numpy.take(array, indices, axis=0)``. All rows are read at once, and other Python threads run
    meanwhile.

    >>> import numpy, softfault
    >>> a = softfault.empty((1000, 4), dtype="i4")
    >>> a[:] = numpy.arange(4000).reshape(1000, 4)
    >>> softfault.take(a, [7, -1])
    array([[  28,   29,   30,   31],
           [3996, 3997, 3998, 3999]], dtype=int32)
    """
    import numpy

    rows = numpy.asarray(array)
    if rows.ndim == 0:
        raise ValueError("the array has no rows")
    wanted = numpy.asarray(indices)
    if wanted.size == 0 and wanted.dtype == float:
        wanted = wanted.astype(numpy.int64)
    if wanted.dtype.kind not in "iu":
        raise TypeError("indices are integers")
    if not _goes_by_rows(rows, out):
        return numpy.take(rows, wanted, axis=0, out=out)
    shape = wanted.shape + rows.shape[1:]
    # As numpy: one item of one row is no array, unless the caller gives one.
    is_item = out is None and shape == ()
    if out is None:
        out = numpy.empty(shape, rows.dtype)
    elif out.shape != shape:
        raise ValueError(f"out has the shape {out.shape}, and not {shape}")
    if wanted.dtype.kind == "u" and wanted.size and int(wanted.max()) >= len(rows):
        raise IndexError(f"index {int(wanted.max())} is out of bounds for axis 0 with size {len(rows)}")
    wanted = numpy.ascontiguousarray(wanted, dtype=numpy.int64)
    row = rows.itemsize
    for length in rows.shape[1:]:
        row *= length
    first = rows.__array_interface__["data"][0]
    native.take_rows((first, rows.strides[0], row, len(rows)), wanted, out.reshape(-1).view(numpy.uint8) if row else out)
    return out[()] if is_item else out


def _goes_by_rows(rows, out):
    """True if the bytes of each row are contiguous, in a map."""
    if rows.size == 0 or rows.dtype.hasobject:
        return False
    expected = rows.itemsize
    for length, stride in zip(reversed(rows.shape[1:]), reversed(rows.strides[1:])):
        if length != 1 and stride != expected:
            return False
        expected *= length
    if out is not None and not (out.flags.c_contiguous and out.flags.writeable and out.dtype == rows.dtype):
        return False
    return native.is_served(*_place(rows))


#: Bytes that are handed over at a time, where a file is used by its own methods.
_STEP = 1 << 20

#: Python's own buffers before a descriptor. A class derived from one, or like one, may change the bytes on their way.
_BUFFERS = (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)


def _descriptor(file, method):
    """The descriptor whose bytes are the file's own, or None where they are what its method makes of them: those of a
    compressed file are others."""
    if isinstance(file, int):
        return file
    # A socket, for example, has a descriptor alone.
    if type(file) is io.FileIO or not hasattr(file, method):
        return file.fileno()
    return None


def write(file, buffer):
    """Writes a buffer to a file or a descriptor, in as many calls as needed; memory of a map need not be resident.

    ``os.write`` of such memory may write fewer bytes, or fail with EFAULT. Returns the number of bytes written, which are
    fewer only if the file does not wait (``os.set_blocking``) and has taken some; if it has taken none, ``BlockingIOError`` is
    raised. Every other error is raised, also where it came behind some bytes. An object with a ``write`` of its own, such as a
    compressed file, gets the bytes by that; a file of the module io over a descriptor does not.
    """
    is_buffer = type(file) in _BUFFERS and type(file.raw) is io.FileIO
    if is_buffer and file.writable():
        file.flush()
        file = file.raw
    fd = _descriptor(file, "write")
    return _by_writes(file, buffer) if fd is None else native.write_from(fd, buffer)


def readinto(file, buffer):
    """Fills a buffer from a file or a descriptor; returns how many bytes there were: fewer at the file's end, or if it does not wait.

    ``file.readinto`` into memory of a map that is not there fails with EFAULT. An object with a ``read`` of its own, a buffered
    file too, is read by that; an unbuffered file of the module io is not.
    """
    # The bytes in the buffer of a file come before those of its descriptor.
    fd = _descriptor(file, "read")
    return _by_reads(file, buffer) if fd is None else native.read_into(fd, buffer)


def _by_writes(file, buffer):
    with memoryview(buffer) as view:
        size, done = view.nbytes, 0
        while done < size:
            data = native.get(view, done, min(_STEP, size - done))
            try:
                count = file.write(data)
            except BlockingIOError as error:
                # What the file has taken counts: the caller goes on behind it.
                done += getattr(error, "characters_written", 0)
                if done == 0:
                    raise
                break
            if count is None:
                if isinstance(file, io.RawIOBase):
                    # It would have to wait.
                    if done == 0:
                        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
                    break
                count = len(data)
            if count == 0:
                raise OSError(errno.EIO, f"{type(file).__name__}.write took none of {len(data)} bytes")
            done += count
    return done


def _by_reads(file, buffer):
    with memoryview(buffer) as view:
        # An error about the buffer comes before the file's position moves.
        native.put(view, 0, b"")
        size, done = view.nbytes, 0
        while done < size:
            data = file.read(min(_STEP, size - done))
            if data is None and done == 0:
                # It would have to wait: no bytes are the file's end.
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            if not data:
                break
            native.put(view, done, bytes(data))
            done += len(data)
    return done
