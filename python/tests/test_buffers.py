"""Buffers that calls on a map are given: their order, their size, and memory of other maps."""

import io
import mmap

import numpy as np
import pytest
import softfault
from conftest import run, served


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
engine = softfault.Engine(memory="64M", allow_kernel_maps=False, small_maps=0)
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


#: `a` is a map of drawn bytes, and `b` one whose file ends after its first page, or memory for which the budget has no room.
TWO_MAPS = """
import mmap, tempfile
import numpy as np
import softfault
engine = softfault.Engine(memory="10M", allow_kernel_maps=False, small_maps=0)
file = tempfile.TemporaryFile()
file.write(np.random.default_rng(1).bytes(1 << 20))
file.flush()
a = engine.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)
rows = np.frombuffer(a, "i8").reshape(-1, 512)
assert rows[3, 0] != 0
"""
SHORTER = """
file = tempfile.TemporaryFile()
file.truncate(1 << 20)
b = engine.mmap(file.fileno(), 0)
file.truncate(4096)
some = memoryview(b)[8200:16000]
of_b = np.frombuffer(b, "i8", 255 * 512, 8).reshape(-1, 512)
"""
FULL = """
other = softfault.Engine(memory="10M", allow_kernel_maps=False, small_maps=0)
b = other.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE)
try:
    b.populate(write=True)
except MemoryError:
    pass
some = memoryview(b)[-8192:]
of_b = np.frombuffer(b, "i8").reshape(-1, 512)
"""


@pytest.mark.parametrize(
    "call",
    [
        "a.__setitem__(slice(5, 5 + len(some)), some)",
        "a.__setitem__(slice(0, 2 * len(some), 2), some)",
        "a.write(some)",
        "a.find(some)",
        "a.rfind(some)",
        "a.readinto(some)",
        "softfault.take(rows, [3, 4], out=of_b[2:4])",
        "softfault.take(rows, of_b[2])",
    ],
)
@pytest.mark.parametrize("coherence", ["kernel", "engine"])
def test_memory_of_another_map_that_cannot_be_had(call, coherence):
    """Is an exception, as that of the map whose method it is, and not SIGBUS."""
    said = run(f"""
{TWO_MAPS.replace("allow_kernel_maps", f"coherence='{coherence}', allow_kernel_maps")}{SHORTER}
try:
    {call}
except OSError:
    print("error", a.tell(), rows.sum() != 0)
""").stdout
    assert said == "error 0 True\n"


@pytest.mark.parametrize("call", ["a.readinto(some)", "softfault.take(rows, [3, 4], out=of_b[-3:-1])"])
def test_memory_of_another_map_for_which_there_is_no_room(call):
    said = run(f"{TWO_MAPS}{FULL}\ntry:\n    {call}\nexcept MemoryError:\n    print('error', a.tell())\n").stdout
    assert said == "error 0\n"


@pytest.mark.parametrize("coherence", ["kernel", "engine"])
def test_bytes_of_one_map_go_to_another(tmp_path, coherence):
    size = (3 << 20) + 4096
    content = np.random.default_rng(2).bytes(size)
    paths = [tmp_path / "a", tmp_path / "b"]
    paths[0].write_bytes(content)
    paths[1].write_bytes(bytes(size))
    with served(coherence=coherence) as engine, open(paths[0], "r+b") as one, open(paths[1], "r+b") as two:
        a, b = engine.mmap(one.fileno(), 0, access=mmap.ACCESS_READ), engine.mmap(two.fileno(), 0)
        part = slice(5, size - 9)
        with memoryview(a) as of_a, memoryview(b) as of_b:
            b[part] = of_a[part]
            assert b[:] == bytes(5) + content[part] + bytes(9)
            b[299_999::-3] = of_a[:100_000]
            assert b[299_999::-3] == content[:100_000]
            b[:] = bytes(size)
            a.seek(5)
            assert a.readinto(of_b[part]) == size - 14 and a.tell() == size - 9
            assert b[:] == bytes(5) + content[part] + bytes(9)
            assert a.find(of_b[9 : 1 << 20], 0) == 9 == a.rfind(of_b[9:300], 0)
            assert a.find(of_b[:10], 0) == -1
            assert b.seek(0) == 0 == b.write(of_a[:0]) and b.write(of_a) == size and b[:] == content
        rows = np.frombuffer(a, "u1").reshape(-1, 4096)
        out = np.frombuffer(b, "u1").reshape(-1, 4096)
        wanted = np.random.default_rng(3).integers(-len(rows), len(rows), len(rows))
        assert softfault.take(rows, wanted, out=out) is out and np.array_equal(out, rows[wanted])
        # Rows that are larger than a step, and indices that are a map's.
        b[:16] = np.array([1, -2]).tobytes()
        indices = np.frombuffer(b, "i8", 2)
        halves = rows.reshape(2, -1)
        assert np.array_equal(softfault.take(halves, indices), halves[[1, 0]])
        del rows, out, indices, halves


def test_a_buffer_of_a_map_where_a_read_only_one_is_as_well(tmp_path):
    """Maps of one file in one engine may be at the same addresses."""
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    with served(coherence="engine") as engine, open(path, "r+b") as file:
        first = engine.mmap(file.fileno(), 0)
        reads = engine.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        first.close()
        writes = engine.mmap(file.fileno(), 0)
        with memoryview(writes) as view:
            assert softfault.readinto(io.BytesIO(b"ab"), view[5:7]) == 2
            with open("/dev/zero", "rb", buffering=0) as zeros:
                assert softfault.readinto(zeros, view[6:8]) == 2
        assert writes[4:8] == reads[4:8] == b"\0a\0\0"


def test_a_buffer_of_no_bytes_may_be_nowhere(path):
    """Failed before: a slice was made of a null pointer, which a build with assertions ends the process for."""
    run(
        """
import ctypes, os, sys, softfault
from conftest import served
nothing = (ctypes.c_char * 0).from_address(0)
with served():
    m = softfault.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, access=softfault.ACCESS_READ)
    memory = softfault.mmap(-1, 1 << 20, flags=softfault.MAP_PRIVATE)
assert m.find(nothing) == 0 and m.rfind(nothing) == len(m)
memory[5:5] = nothing
assert memory.write(nothing) == 0
reading, writing = os.pipe()
assert softfault.write(writing, nothing) == 0
os.write(writing, b"x")
assert softfault.readinto(reading, nothing) == 0
print("done")
""",
        path,
    )
