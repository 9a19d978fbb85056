"""numpy's arrays over maps: ``memmap``, ``open_memmap``, and memory that may be larger than memory."""

from __future__ import annotations

import contextlib
import errno
import math
import mmap as _standard
import operator
import os

import numpy as np

from . import _pages
from ._engine import current_engine
from ._native_or_fallback import mmap, native

_MODES = ("r", "c", "r+", "w+")
_LONG_MODES = {"readonly": "r", "copyonwrite": "c", "readwrite": "r+", "write": "w+"}

#: Bytes of an array without order in memory that are copied before they are written.
_STEP = 1 << 20


class _Methods:
    """Methods of arrays over maps, besides numpy's: they work on memory that is not resident."""

    def fault_in(self, timeout=None):
        """Brings the whole array into memory: see :func:`softfault.fault_in`."""
        _pages.fault_in(self, timeout)

    def populate(self, *, write=False, progress=None):
        """Brings the whole array into memory, as reads would or as writes would; calls ``progress(done, all)`` now and then."""
        first, length = _pages._place(self)
        if length and self._mmap is not None:
            start = first - _pages._place(np.frombuffer(self._mmap, np.uint8))[0]
            self._mmap.populate(start, length, write=write, progress=progress)

    def write_to(self, file):
        """Writes the array's bytes, in C order, to a file or a descriptor; returns the number of bytes."""
        done = 0
        for part in self._parts():
            try:
                count = _pages.write(file, part)
            except BlockingIOError:
                if done == 0:
                    raise
                break
            done += count
            if count < part.nbytes:
                # What comes next in the file is the rest of this part.
                break
        return done

    def _parts(self):
        """The array's bytes in C order, part by part."""
        plain = self.view(np.ndarray)
        if plain.dtype.hasobject:
            raise OSError("cannot write object arrays to a file")
        if plain.flags.c_contiguous:
            return [plain.reshape(-1).view(np.uint8)] if plain.size else []
        return (part.reshape(-1).view(np.uint8) for part in _copies(plain))

    def tofile(self, fid, sep="", format="%s"):
        """As numpy's, and works for bytes that are not in memory. A file that does not get all of them is an ``OSError``."""
        if sep:
            return super().tofile(fid, sep, format)
        if not hasattr(fid, "fileno"):
            with open(os.fspath(fid), "wb", buffering=0) as file:
                self._write_all(file.fileno())
            return None
        fid.flush()
        fd = fid.fileno()
        # As numpy: where the file's object is, which may have read ahead of it.
        with contextlib.suppress(OSError):
            os.lseek(fd, fid.tell(), os.SEEK_SET)
        try:
            self._write_all(fd)
        finally:
            with contextlib.suppress(OSError):
                fid.seek(os.lseek(fd, 0, os.SEEK_CUR))
        return None

    def _write_all(self, fd):
        done = self.write_to(fd)
        if done < self.nbytes:
            raise BlockingIOError(errno.EAGAIN, f"{self.nbytes} bytes requested and {done} written", done)

    def _take_if_rows(self, index):
        """The rows that an array of indices means, or None."""
        if self.ndim == 0:
            return None
        if isinstance(index, list):
            if len(index) < 2 or not all(type(at) is int for at in index):
                return None
            index = np.asarray(index)
            # Of larger numbers it is an array of objects.
            if index.dtype.kind not in "iu":
                return None
        elif not isinstance(index, np.ndarray) or index.dtype.kind not in "iu" or index.size < 2:
            return None
        plain = self.view(np.ndarray)
        return _pages.take(plain, index) if _pages._goes_by_rows(plain, None) else None


def _copies(plain):
    """The array's parts, one after the other, each copied into C order."""
    row = plain[:1].nbytes
    if plain.ndim > 1 and row > _STEP:
        for part in plain:
            yield from _copies(part)
        return
    step = max(1, _STEP // max(row, 1))
    for at in range(0, len(plain), step):
        yield np.array(plain[at : at + step], order="C")


class _Bytes(np.ndarray):
    """All bytes of a map. It keeps the map from being closed as long as an array over it is there; and is of a class of its
    own, so that numpy does not take it for the base of an array's views."""


def _over(kind, mapped, shape, descr, offset, order):
    """An array of a class over a map."""
    held = np.frombuffer(mapped, dtype=np.uint8).view(_Bytes)
    return np.ndarray.__new__(kind, shape, dtype=descr, buffer=held, offset=offset, order=order)


def _unwrapped(arr, return_scalar):
    """The result of an operation, which is no map: an array, or the item of one without dimensions."""
    if return_scalar is None:
        # numpy before 2.0 does not tell, and its memmap returns an item then.
        return_scalar = arr.ndim == 0
    return arr[()] if return_scalar else arr.view(np.ndarray)


class array(_Methods, np.ndarray):
    """An array over memory of an engine: see :func:`empty`."""

    _mmap = None

    def __array_finalize__(self, obj):
        mapped = getattr(obj, "_mmap", None)
        if mapped is not None and np.may_share_memory(self, obj):
            self._mmap = mapped

    def __array_wrap__(self, arr, context=None, return_scalar=None):
        arr = super().__array_wrap__(arr, context)
        if self is arr or type(self) is not array:
            return arr
        return _unwrapped(arr, return_scalar)

    def __getitem__(self, index):
        if type(self) is array:
            taken = self._take_if_rows(index)
            if taken is not None:
                return taken
        found = super().__getitem__(index)
        if type(found) is array and not np.may_share_memory(found, self):
            return found.view(np.ndarray)
        return found


class memmap(_Methods, np.memmap):
    """A file's bytes as an array, under an engine's budget: ``numpy.memmap``, with the same arguments and views.

    ``a[indices]`` for whole rows uses :func:`softfault.take`. The engine is ``engine``, or the current one.

    >>> import os, tempfile, numpy, softfault
    >>> path = os.path.join(tempfile.mkdtemp(), "rows")
    >>> numpy.arange(12, dtype="f4").tofile(path)
    >>> a = softfault.memmap(path, dtype="f4", mode="r", shape=(3, 4))
    >>> isinstance(a, numpy.memmap), float(a.sum())
    (True, 66.0)
    >>> a[[2, 0]]
    array([[ 8.,  9., 10., 11.],
           [ 0.,  1.,  2.,  3.]], dtype=float32)
    """

    def __new__(subtype, filename, dtype=np.uint8, mode="r+", offset=0, shape=None, order="C", *, engine=None):
        mode = _LONG_MODES.get(mode, mode)
        if mode not in _MODES:
            raise ValueError(f"mode must be one of {[*_MODES, *_LONG_MODES]!r} (got {mode!r})")
        if mode == "w+" and shape is None:
            raise ValueError("shape must be given if mode == 'w+'")
        with _opened(filename, mode) as file:
            length = file.seek(0, os.SEEK_END)
            descr = np.dtype(dtype)
            shape, size = _shape(shape, descr, length - offset)
            end = offset + size
            if mode in ("r+", "w+"):
                # A file of no bytes cannot be mapped.
                end = max(end, 1)
                if length < end:
                    file.seek(end - 1)
                    file.write(b"\0")
                    file.flush()
            start = offset - offset % _standard.ALLOCATIONGRANULARITY
            if end == start and start > 0:
                # No bytes: of the page before, since a length of 0 means all.
                start -= _standard.ALLOCATIONGRANULARITY
            access = {"r": _standard.ACCESS_READ, "c": _standard.ACCESS_COPY}.get(mode, _standard.ACCESS_WRITE)
            mapped = mmap(file.fileno(), end - start, access=access, offset=start, engine=engine)
            self = _over(subtype, mapped, shape, descr, offset - start, order)
            self._mmap = mapped
            self.offset = offset
            self.mode = mode
            name = getattr(file, "name", None)
            if isinstance(filename, os.PathLike):
                self.filename = filename.resolve()
            else:
                self.filename = os.path.abspath(name) if isinstance(name, str) else None
        return self

    def flush(self):
        """Writes the changes to the file, and waits until they are on its device."""
        if self._mmap is not None:
            self._mmap.flush()

    def __array_wrap__(self, arr, context=None, return_scalar=None):
        arr = np.ndarray.__array_wrap__(self, arr, context)
        if self is arr or type(self) is not memmap:
            return arr
        return _unwrapped(arr, return_scalar)

    def __getitem__(self, index):
        if type(self) is memmap:
            taken = self._take_if_rows(index)
            if taken is not None:
                return taken
        found = np.ndarray.__getitem__(self, index)
        if type(found) is memmap and found._mmap is None:
            return found.view(np.ndarray)
        return found


@contextlib.contextmanager
def _opened(file, mode):
    if hasattr(file, "read"):
        yield file
        return
    with open(os.fspath(file), ("r" if mode == "c" else mode) + "b") as opened:
        yield opened


def _shape(shape, descr, left):
    """A shape, and its bytes; without one, of all bytes that are left."""
    if shape is None:
        if left % descr.itemsize:
            raise ValueError("Size of available data is not a multiple of the data-type size.")
        return (left // descr.itemsize,), left
    if not isinstance(shape, (tuple, list)):
        with contextlib.suppress(TypeError):
            shape = (operator.index(shape),)
    shape = tuple(shape)
    return shape, math.prod(int(length) for length in shape) * descr.itemsize


def open_memmap(filename, mode="r+", dtype=None, shape=None, fortran_order=False, version=None, *, engine=None):
    """A ``.npy`` file as a :class:`memmap`: ``numpy.lib.format.open_memmap``, with the same arguments.

    >>> import os, tempfile, numpy, softfault
    >>> path = os.path.join(tempfile.mkdtemp(), "rows.npy")
    >>> numpy.save(path, numpy.eye(3))
    >>> softfault.open_memmap(path, mode="r").shape
    (3, 3)
    """
    # numpy reads or writes the header. It maps the file, and touches none of it.
    seen = np.lib.format.open_memmap(
        filename, mode=mode, dtype=dtype, shape=shape, fortran_order=fortran_order, version=version
    )
    order = "F" if seen.flags.f_contiguous and not seen.flags.c_contiguous else "C"
    told = (seen.dtype, seen.mode, seen.offset, seen.shape)
    del seen
    dtype, mode, offset, shape = told
    return memmap(filename, dtype=dtype, mode=mode, offset=offset, shape=shape, order=order, engine=engine)


def empty(shape, dtype=float, order="C", *, engine=None):
    """An array of zeros that may be larger than memory. A page costs nothing until it is written. Then it counts against
    the budget, and goes to the engine's swap when the budget is full.

    >>> import softfault
    >>> a = softfault.empty((1 << 20, 64))  # 512 MiB, none of it in memory yet
    >>> a[5] = 1
    >>> float(a[5].sum())
    64.0
    """
    descr = np.dtype(dtype)
    if descr.hasobject:
        raise TypeError("a map cannot hold Python objects: use a dtype without objects")
    shape, size = _shape(shape, descr, 0)
    if size == 0:
        return np.empty(shape, descr, order).view(array)
    flags = getattr(_standard, "MAP_PRIVATE", None)
    if flags is None:
        mapped = mmap(-1, size)
    else:
        mapped = mmap(-1, size, flags=flags, engine=engine or current_engine())
    made = _over(array, mapped, shape, descr, 0, order)
    made._mmap = mapped
    return made
