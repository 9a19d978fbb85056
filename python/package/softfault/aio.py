"""``softfault.fault_in`` and ``softfault.take`` for asyncio: other tasks run while pages are read.

>>> import asyncio, numpy, softfault
>>> from softfault import aio
>>> a = softfault.empty((1000, 4))
>>> a[9] = 9
>>> asyncio.run(aio.take(a, [9]))
array([[9., 9., 9., 9.]])
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

from . import _pages

#: Calls that wait at a time. Each has many reads in flight by itself.
_CALLS = 16
_executor: tuple[int, ThreadPoolExecutor] | None = None


def _threads() -> ThreadPoolExecutor:
    """This process's: a child of fork has none of its parent's threads."""
    global _executor
    if _executor is None or _executor[0] != os.getpid():
        _executor = (os.getpid(), ThreadPoolExecutor(_CALLS, thread_name_prefix="softfault"))
    return _executor[1]


async def fault_in(ranges, timeout=None):
    """As :func:`softfault.fault_in`."""
    await asyncio.get_running_loop().run_in_executor(_threads(), _pages.fault_in, ranges, timeout)


async def take(array, indices, out=None):
    """As :func:`softfault.take`."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), _pages.take, array, indices, out)
