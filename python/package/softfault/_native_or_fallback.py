"""The native part, or the standard library's mmap in its place."""

from __future__ import annotations

import sys

IS_NATIVE = False

if sys.platform == "linux":
    try:
        from . import _native as native

        IS_NATIVE = hasattr(native, "mmap")
    except ImportError as _error:
        # A second interpreter of a process is refused by the module itself; that it is not there is another matter.
        if not isinstance(_error, ModuleNotFoundError):
            raise

if not IS_NATIVE:
    import warnings

    from . import _fallback as native  # type: ignore[no-redef]

    warnings.warn(
        "softfault has no native part here: the system's mmap serves its maps, without a budget",
        RuntimeWarning,
        stacklevel=3,
    )

mmap = native.mmap
