"""Maps that the kernel serves: their errors are those of the engine's."""

import errno
import mmap
import os

import pytest
import softfault


def test_a_page_that_the_kernel_cannot_bring_in(tmp_path):
    """An error of a read, and not madvise's EFAULT."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * (4 * mmap.PAGESIZE))
    with open(path, "r+b") as file, softfault.mmap(file.fileno(), 0) as m:
        assert not m.managed
        os.truncate(path, mmap.PAGESIZE)
        try:
            m.madvise(22)  # MADV_POPULATE_READ
        except OSError as error:
            if error.errno != errno.EFAULT:
                pytest.skip(f"the kernel has no MADV_POPULATE_READ: {error}")
        m.populate(0, mmap.PAGESIZE)
        m.populate(0, mmap.PAGESIZE, write=True)
        for call in (m.populate, lambda: m.populate(write=True), lambda: m.fault_in([(0, len(m))])):
            with pytest.raises(OSError) as raised:
                call()
            assert raised.value.errno == errno.EIO
