"""Memory maps larger than memory, under a fixed budget.

``softfault.mmap`` has the interface of ``mmap.mmap``, and ``softfault.memmap`` that of ``numpy.memmap``. Their pages are
read when they are touched, and the pages that the engine serves never exceed the budget. By default the kernel maps small
files, and files in the page cache, itself, outside of the budget; ``Engine(allow_kernel_maps=False)`` forbids it:

>>> import os, tempfile
>>> import softfault
>>> path = os.path.join(tempfile.mkdtemp(), "file")
>>> with open(path, "wb") as file:
...     _ = file.write(bytes(range(256)) * 4096)
>>> softfault.set_memory("64M")
>>> with open(path, "rb") as file:
...     m = softfault.mmap(file.fileno(), 0, access=softfault.ACCESS_READ)
>>> len(m), m[255], m.find(b"\\x05\\x06")
(1048576, 255, 5)
>>> m.close()

If the process may not use userfaultfd, or the system is not Linux, the same names use the system's mmap, without a budget.
The package warns once then.
"""

from __future__ import annotations

import mmap as _standard
import sys as _sys
import sysconfig as _sysconfig

if _sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError(
        "softfault does not support free-threaded builds of Python: it relies on the interpreter's lock"
    )

from . import _handlers
from ._native_or_fallback import IS_NATIVE, mmap
from ._engine import Engine, current_engine, set_memory, stats
from ._pages import fault_in, readinto, take, write

# The standard library's constants, as far as this system has them.
for _name in dir(_standard):
    if _name.startswith(("ACCESS_", "MAP_", "PROT_", "MADV_")) or _name in ("PAGESIZE", "ALLOCATIONGRANULARITY"):
        globals()[_name] = getattr(_standard, _name)
del _name

error = OSError

if IS_NATIVE:
    _handlers._install()

__all__ = [
    "Engine",
    "array",
    "current_engine",
    "empty",
    "fault_in",
    "memmap",
    "mmap",
    "open_memmap",
    "readinto",
    "set_memory",
    "stats",
    "take",
    "write",
]

__version__ = "0.1.0"

_OF_NUMPY = ("array", "empty", "memmap", "open_memmap")


def __getattr__(name: str):
    # numpy is imported only by programs that use arrays.
    if name in _OF_NUMPY:
        from . import _arrays

        for known in _OF_NUMPY:
            globals()[known] = getattr(_arrays, known)
        return globals()[name]
    if name == "aio":
        import importlib

        return importlib.import_module(".aio", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_OF_NUMPY, "aio"})
