"""Tests of CPython's and numpy's that do not pass over softfault, and why. There is no other list.

A run fails if one of these begins to pass, and if another one fails.
"""

#: Of ``test.test_mmap``, by name.
OF_CPYTHON: dict[str, str] = {
    "MmapTests.test_repr": "the class is called softfault.mmap, and says so",
}

#: Of numpy's ``test_memmap``, by name.
OF_NUMPY: dict[str, str] = {}

#: Of the same test before numpy 2.0.
OF_OLD_NUMPY: dict[str, str] = {
    "TestMemmap::test_empty_array": "arrays without bytes can be mapped, as by numpy 2",
}
