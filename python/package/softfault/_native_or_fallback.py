"""The native part, or the standard library's mmap in its place."""

from __future__ import annotations

import importlib
import sys

IS_NATIVE = False

if sys.platform == "linux":
    try:
        # Not `from . import`, which says of a missing module only that a name cannot be imported.
        native = importlib.import_module("._native", __package__)
        IS_NATIVE = hasattr(native, "mmap")
    except ModuleNotFoundError as _error:
        # That very module is not there. A module that refuses a second interpreter, or cannot be loaded, is another matter.
        if _error.name != f"{__package__}._native":
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
