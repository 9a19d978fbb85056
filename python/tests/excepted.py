"""Tests of CPython's and numpy's that do not pass over softfault, and why. There is no other list.

A run fails if one of these begins to pass, and if another one fails.
"""

#: Of ``test.test_mmap``, by name.
OF_CPYTHON: dict[str, str] = {
    "MmapTests.test_repr": "the class is called softfault.mmap, and says so",
}

#: Of ``numpy._core.tests.test_memmap``, by name.
OF_NUMPY: dict[str, str] = {}
