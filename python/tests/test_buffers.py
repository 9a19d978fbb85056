"""Buffers that calls on a map are given: their order, their size, and memory of other maps."""

import io
import mmap

import numpy as np
import pytest
import softfault
from conftest import run


@pytest.mark.parametrize("as_view", [False, True])
def test_an_array_in_fortran_s_order_is_not_taken_as_its_memory(tmp_path, engine, as_view):
    """As for mmap.mmap and os.write: the caller says which order is meant."""
    content = bytes(range(1, 13))
    array = np.frombuffer(content, "u1").reshape(3, 4).copy(order="F")
    given = memoryview(array) if as_view else array
    m = engine.mmap(-1, 4096, flags=mmap.MAP_PRIVATE)
    m[:12] = content
    path = tmp_path / "file"
    path.write_bytes(content)
    with open(path, "r+b") as file, open(path, "r+b", buffering=0) as raw:
        for call in (
            lambda: m.__setitem__(slice(0, 12), given),
            lambda: m.__setitem__(slice(0, 24, 2), given),
            lambda: m.write(given),
            lambda: m.find(given),
            lambda: m.rfind(given),
            lambda: m.readinto(given),
            lambda: softfault.write(raw, given),
            lambda: softfault.write(file, given),
            lambda: softfault.write(io.BytesIO(), given),
            lambda: softfault.readinto(raw, given),
            lambda: softfault.readinto(file, given),
        ):
            with pytest.raises(BufferError, match="C-contiguous"):
                call()
        assert (m.tell(), file.tell(), raw.tell()) == (0, 0, 0)
    assert m[:12] == content == path.read_bytes() == array.tobytes()
    # In C order it is what it says; an array of one column, or of one row, is in both orders.
    for again in (np.ascontiguousarray(array), array.ravel().reshape(12, 1), np.asfortranarray(array.reshape(1, 12))):
        m[:12] = bytes(12)
        m[:12] = again
        assert m[:12] == content and m.find(again) == 0


def test_fortran_s_order_where_only_the_place_matters(engine):
    a = softfault.empty((64, 512), "i8", order="F")
    a[:] = np.arange(64 * 512).reshape(64, 512)
    assert a.flags.f_contiguous and not a.flags.c_contiguous
    softfault.fault_in([a, memoryview(a)])
    a.fault_in()
    a.populate()
    out = io.BytesIO()
    assert a.write_to(out) == a.nbytes and out.getvalue() == a.tobytes()


@pytest.mark.parametrize(
    "call", ["m[::2]", "m[::-1]", "m.__setitem__(slice(None, None, 2), other)", "m.find(other)", "m.rfind(other)"]
)
def test_more_bytes_than_there_is_memory_for(call):
    """Is an exception, and does not end the process."""
    said = run(f"""
import mmap, resource, softfault
engine = softfault.Engine(memory="64M", by_kernel=False, small_maps=0)
m = engine.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE)
other = engine.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE)
with open("/proc/self/statm") as file:
    most = int(file.read().split()[0]) * mmap.PAGESIZE + (1 << 29)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    {call}
except MemoryError:
    m[5:9:2] = b"ab"
    print(m[4:8], m[9:3:-2])
""").stdout
    assert said == "b'\\x00a\\x00b' b'\\x00ba'\n"
