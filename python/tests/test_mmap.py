"""``softfault.mmap`` beside the standard library's."""

import gc
import io
import mmap
import os
import random
import re
import sys
import threading
import time
import weakref
import zlib

import numpy as np
import pytest
import softfault
from conftest import BUDGET, served


@pytest.fixture
def cold(path, engine):
    with open(path, "rb") as file, engine.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as m:
        assert m.managed
        yield m


def test_every_byte_of_four_budgets(cold, path, engine):
    with open(path, "rb") as file:
        for at in range(0, len(cold), 1 << 20):
            assert cold[at : at + (1 << 20)] == file.read(1 << 20)
    stats = engine.stats()
    assert stats["peak_bytes"] <= BUDGET
    assert stats["evicted"] > 0


def test_read_as_a_file(cold, path):
    with open(path, "rb") as file:
        crc = 0
        while data := cold.read(300_001):
            crc = zlib.crc32(data, crc)
        assert crc == zlib.crc32(file.read())
    assert cold.read_byte.__doc__
    cold.seek(-5, os.SEEK_END)
    assert len(cold.read()) == 5 and cold.read() == b""
    with pytest.raises(ValueError, match="read byte out of range"):
        cold.read_byte()


def test_lines_that_are_longer_than_a_step(tmp_path, engine):
    lines = [b"a" * n + b"\n" for n in (0, 1, 4095, 4096, 300_000, 2_000_000)] + [b"no end"]
    file = tmp_path / "lines"
    file.write_bytes(b"".join(lines))
    with open(file, "rb") as opened, engine.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as m:
        assert [m.readline() for _ in lines] == lines
        assert m.readline() == b""
        m.seek(0)
        buffered = bytearray(7)
        assert m.readinto(buffered) == 7 and buffered == b"".join(lines)[:7]


def test_find_across_steps(tmp_path, engine):
    size = 1_500_000
    content = bytearray(size)
    needle = b"needle" * 20
    places = [0, 262_144 - 60, 524_288 - 1, 1_000_003, size - len(needle)]
    for place in places:
        content[place : place + len(needle)] = needle
    file = tmp_path / "haystack"
    file.write_bytes(content)
    with open(file, "rb") as opened, engine.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as m:
        found, at = [], m.find(needle)
        while at >= 0:
            found.append(at)
            at = m.find(needle, at + 1)
        assert found == places
        assert m.rfind(needle) == places[-1]
        assert m.rfind(needle, 0, places[-1]) == places[-2]
        assert m.rfind(b"absent") == m.find(b"absent") == -1
        assert [match.start() for match in re.finditer(re.escape(needle), m)] == places


def sought():
    """Lengths of what is sought. Python 3.11.2 finds the empty bytes also in a range that ends before it begins, 3.11.7 does not."""
    with mmap.mmap(-1, 200) as standard:
        return [0, 1, 2] if standard.find(b"", 100, 50) == -1 else [1, 2]


def operations(seed, size):
    """Calls that change or look at a map, drawn at random."""
    draw, lengths = random.Random(seed), sought()
    at = lambda: draw.randrange(-size - 3, size + 3)  # noqa: E731
    some = lambda: draw.randbytes(draw.choice([0, 1, 3, 100, 5000]))  # noqa: E731
    for _ in range(400):
        drawn = draw.choice(
            [
                lambda m, i=at(): m[i],
                lambda m, i=at(), j=at(), k=draw.choice([1, 1, 2, -1, -7, 4097]): m[i:j:k],
                lambda m, i=at(), b=draw.randrange(-1, 257): m.__setitem__(i, b),
                lambda m, i=draw.randrange(size), b=some(): m.__setitem__(slice(i, i + len(b)), b),
                lambda m, i=at(), j=at(), k=draw.choice([2, -1, 61]): m.__setitem__(
                    slice(i, j, k), bytes(len(range(*slice(i, j, k).indices(len(m)))))
                ),
                lambda m, i=at(), w=draw.randrange(3): m.seek(i, w) and None,
                lambda m, n=draw.choice([None, -1, 0, 1, 5000]): m.read(n),
                lambda m: m.readline(),
                lambda m: m.read_byte(),
                lambda m, b=some(): m.write(b),
                lambda m, b=draw.randrange(-1, 257): m.write_byte(b),
                lambda m, b=draw.randbytes(draw.choice(lengths)), i=at(), j=at(): m.find(b, i, j),
                lambda m, b=draw.randbytes(draw.choice(lengths)), i=at(), j=at(): m.rfind(b, i, j),
                lambda m, a=at(), b=at(), n=draw.randrange(-1, size): m.move(a, b, n),
                lambda m: m.tell(),
                lambda m: len(m),
                # With an offset alone the standard library's fails, before Python 3.15.
                lambda m, i=draw.choice([0, 0, 4096, 8192, 77]): m.flush(i, abs(len(m) - i)),
                lambda m: zlib.crc32(m),
                # To 0 the standard library cuts the file, and fails.
                lambda m, n=draw.randrange(-1, 3 * size) or 1: m.resize(n),
                lambda m: m.size(),
                lambda m, i=draw.choice([-1, 0, 4096, size * 4]), o=mmap.MADV_WILLNEED: m.madvise(o, i),
                lambda m, i=at(): next(iter(m)) if i else next(reversed(m)),
            ]
        )
        yield drawn, f"{drawn.__code__.co_names} {str(drawn.__defaults__)[:60]}"


def outcome(call, m):
    try:
        return call(m)
    except BaseException as error:
        return type(error), getattr(error, "errno", None)


@pytest.mark.parametrize("access", [mmap.ACCESS_WRITE, mmap.ACCESS_COPY, mmap.ACCESS_READ])
@pytest.mark.parametrize("coherence", ["kernel", "engine"])
def test_drawn_calls_beside_the_standard_library(tmp_path, access, coherence):
    """The same calls, the same results, the same exceptions, the same files."""
    seeds = range(int(os.environ.get("SOFTFAULT_PYTHON_SEEDS", "2")))
    with served(coherence=coherence) as engine:
        for seed in seeds:
            size = random.Random(seed).choice([1, 4096, 10_000, 70_000])
            content = random.Random(seed).randbytes(size)
            files = [tmp_path / f"{seed}-{which}" for which in ("standard", "softfault")]
            maps = []
            for file in files:
                file.write_bytes(content)
            with open(files[0], "r+b") as file:
                maps.append(mmap.mmap(file.fileno(), 0, access=access))
            with open(files[1], "r+b") as file:
                maps.append(engine.mmap(file.fileno(), 0, access=access))
            for number, (call, name) in enumerate(operations(seed, size)):
                expected, got = (outcome(call, m) for m in maps)
                assert got == expected, f"seed {seed}, call {number}: {name}"
            for m in maps:
                m.flush()
                m.close()
            assert files[0].read_bytes() == files[1].read_bytes()


class Resizes:
    """A number, of which the map has another length after it was asked for."""

    def __init__(self, m, number, to=4096):
        self.m, self.number, self.to = m, number, to

    def __index__(self):
        self.m.resize(self.to)
        return self.number


#: Calls on a map of a MiB that becomes a page meanwhile.
MEANWHILE = {
    "m[i:j]": lambda m, at: m[0:at],
    "m[i:j:k]": lambda m, at: m[0:at:2],
    "m[i:j:-k]": lambda m, at: m[at:0:-3],
    "m[i:j:k] by its step": lambda m, at: m[0 :: Resizes(m, 5)],
    "m[i]": lambda m, at: m[at],
    "m[i] of the rest": lambda m, at: m[Resizes(m, 4095)],
    "m[-i]": lambda m, at: m[Resizes(m, -4096)],
    "m[i:j] = all": lambda m, at: m.__setitem__(slice(0, at), bytes(1 << 20)),
    "m[i:j] = the rest": lambda m, at: m.__setitem__(slice(0, at), b"z" * 4096),
    "m[i:j:k] = all": lambda m, at: m.__setitem__(slice(0, at, 2), bytes(1 << 19)),
    "m[i:j:k] = the rest": lambda m, at: m.__setitem__(slice(0, at, 2), b"z" * 2048),
    "m[i] =": lambda m, at: m.__setitem__(at, 5),
    "m[i] = of the rest": lambda m, at: m.__setitem__(Resizes(m, 4095), 5),
    "m[i] = v": lambda m, at: m.__setitem__(4000, Resizes(m, 5)),
    "read": lambda m, at: m.read(at),
    "find": lambda m, at: m.find(b"y", 0, at),
    "flush": lambda m, at: m.flush(0, at),
    "move": lambda m, at: m.move(0, 1, at),
    "seek": lambda m, at: m.seek(at),
    "madvise": lambda m, at: m.madvise(mmap.MADV_WILLNEED, 0, at),
    "m[i:j] of more": lambda m, at: m[0 : Resizes(m, 1 << 22, 1 << 21)],
    "m[-i:] of more": lambda m, at: m[Resizes(m, -5, 1 << 21) :],
}


@pytest.mark.parametrize("name", MEANWHILE)
def test_an_index_that_resizes_the_map(tmp_path, engine, name):
    """What is meant is of the length that the map has then, as with the standard library's."""
    seen = []
    for make in (mmap.mmap, engine.mmap):
        path = tmp_path / "file"
        path.write_bytes(b"xy" * (1 << 19))
        with open(path, "r+b") as file:
            m = make(file.fileno(), 0)
        got = outcome(lambda m: MEANWHILE[name](m, Resizes(m, 1 << 20)), m)
        seen.append((got, len(m), m[:]))
        m.close()
    assert seen[0] == seen[1]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes of Python have no buffers before 3.12")
@pytest.mark.parametrize("step", [1, 2])
def test_bytes_that_resize_the_map_they_are_for(engine, step):
    class Buffer:
        def __buffer__(self, flags):
            m.resize(4096)
            return memoryview(bytes((1 << 20) // step))

    m = engine.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE)
    with pytest.raises(IndexError, match="wrong size"):
        m[::step] = Buffer()
    assert len(m) == 4096


class Fails:
    def __init__(self, error):
        self.error = error

    def __index__(self):
        raise self.error


@pytest.mark.parametrize(
    "value", [Fails(error) for error in (KeyboardInterrupt(), RuntimeError(), OverflowError("own"), IndexError(), ValueError())]
    + [2**100, -(2**100), 2**64, 300, -1, 1.5, "1", b"1", object, slice(0, 1), True, np.int64(7), np.uint8(200), np.int64(300)],
    ids=lambda value: repr(getattr(value, "error", value)),
)  # fmt: skip
def test_numbers_that_are_none_or_too_large(engine, value):
    """Exceptions of their own are raised as they are; others are the standard library's, with its text."""
    names = ["m[i]", "m[i:]", "m[i] =", "m[0] =", "write_byte", "read", "seek", "move", "find", "madvise", "resize", "flush"]
    calls = [
        lambda m: m[value],
        lambda m: m[value:],
        lambda m: m.__setitem__(value, 1),
        lambda m: m.__setitem__(0, value),
        lambda m: m.write_byte(value),
        lambda m: m.read(value),
        lambda m: m.seek(value) and None,
        lambda m: m.move(0, value, 1),
        lambda m: m.find(b"a", value),
        lambda m: m.madvise(mmap.MADV_WILLNEED, 0, value),
        lambda m: m.resize(value),
        lambda m: m.flush(0, value),
    ]
    for name, call in zip(names, calls):
        seen = []
        for make in (mmap.mmap, engine.mmap):
            with make(-1, 4096, flags=mmap.MAP_PRIVATE) as m:
                m[:] = bytes(range(256)) * 16
                try:
                    got = call(m)
                except BaseException as error:
                    got = type(error), str(error) if name in ("m[i]", "m[0] =") else ""
                seen.append((got, m.tell(), m[:]))
        assert seen[0] == seen[1], name


@pytest.mark.parametrize("over", [iter, reversed])
def test_an_iterator_of_a_map_that_changes(tmp_path, engine, over):
    """It ends once and for all, as the standard library's."""
    seen = []
    for make in (mmap.mmap, engine.mmap):
        path = tmp_path / "file"
        path.write_bytes(b"abc")
        with open(path, "r+b") as file:
            m = make(file.fileno(), 0)
        got, longer, shorter, closed = [], over(m), over(m), over(m)
        for size, some in ((3, longer), (4, longer), (4, shorter), (2, shorter), (5, shorter), (2, closed)):
            m.resize(size)
            got.append([outcome(lambda m: next(some), m) for _ in range(3)])
        m.close()
        seen.append([*got, list(longer), list(shorter), outcome(lambda m: next(closed), m), outcome(reversed, m)])
    assert seen[0] == seen[1]


def test_a_byte_that_an_iterator_could_not_have_is_its_next(tmp_path, engine):
    path = tmp_path / "file"
    path.write_bytes(bytes(4096) + b"ab" * 2048)
    with open(path, "r+b") as file, engine.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as m:
        bytes_of = iter(m)
        assert [next(bytes_of) for _ in range(4096)] == [b"\0"] * 4096
        file.truncate(4096)
        for _ in range(2):
            with pytest.raises(OSError):
                next(bytes_of)
        file.truncate(4097)
        assert next(bytes_of) == b"\0"


def test_exported_buffers_keep_it_open(path, engine):
    with open(path, "rb") as file:
        m = engine.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    view = memoryview(m)[4096:8192]
    assert view.readonly
    with pytest.raises(BufferError):
        m.close()
    with pytest.raises(TypeError):
        view[0] = 1
    assert not m.closed and view.nbytes == 4096
    view.release()
    m.close()
    assert m.closed
    for call in (lambda: m[0], lambda: m.read(1), lambda: len(m), lambda: memoryview(m), lambda: m.find(b"a")):
        with pytest.raises(ValueError, match="mmap closed or invalid"):
            call()


def test_writable_buffers(tmp_path, engine):
    file = tmp_path / "file"
    file.write_bytes(bytes(3 << 20))
    for access, in_file in ((mmap.ACCESS_COPY, 0), (mmap.ACCESS_WRITE, 7)):
        with open(file, "r+b") as opened, engine.mmap(opened.fileno(), 0, access=access) as m:
            with memoryview(m) as view:
                view[2_000_000] = 7
                with pytest.raises(BufferError):
                    m.resize(4096) if access == mmap.ACCESS_WRITE else m.close()
            assert m[2_000_000] == 7
        assert file.read_bytes()[2_000_000] == in_file


def test_a_map_of_a_map_s_own_bytes(tmp_path):
    """Copied bytes may be the map's own, and overlap."""
    size = 3 << 20
    content = random.Random(1).randbytes(size)
    with served() as engine:
        m = engine.mmap(-1, size, flags=mmap.MAP_PRIVATE)
        for start, into, length in ((0, 100_000, 2_000_000), (500_000, 3, 2_000_000), (0, 0, size), (5, 6, 1000)):
            m[:] = content
            expected = bytearray(content)
            expected[into : into + length] = content[start : start + length]
            with memoryview(m) as view:
                m[into : into + length] = view[start : start + length]
            assert m[:] == expected


def test_a_page_past_the_new_end_of_a_file_is_an_exception(tmp_path, engine):
    file = tmp_path / "file"
    file.write_bytes(b"x" * (2 << 20))
    with open(file, "r+b") as opened, engine.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as m:
        assert m[0] == ord("x")
        os.truncate(file, 4096)
        for call in (
            lambda: m[1 << 20],
            lambda: m[1 << 20 : (1 << 20) + 9],
            lambda: m.find(b"y"),
            lambda: m.fault_in([(1 << 20, (1 << 20) + 1)]),
            lambda: m.write_to(os.open(os.devnull, os.O_WRONLY), 1 << 20, 4096),
        ):
            with pytest.raises(OSError):
                call()


def test_system_calls_on_cold_memory(cold, path, tmp_path, data):
    """os.write may be short or EFAULT; these are not."""
    out = tmp_path / "out"
    with open(out, "w+b") as file:
        assert cold.write_to(file.fileno()) == len(cold)
        with memoryview(cold) as view:
            assert softfault.write(file, view[4096:12_288]) == 8192
        assert softfault.write(file, b"plain") == 5
    written = out.read_bytes()
    assert written[: len(cold)] == path.read_bytes()
    assert written[len(cold) :] == data.tobytes()[4096:12_288] + b"plain"


def test_reads_into_cold_memory(path, engine, data):
    m = engine.mmap(-1, 4 * BUDGET, flags=mmap.MAP_PRIVATE)
    part = BUDGET // 2
    with open(path, "rb") as file:
        assert m.read_from(file.fileno(), 4096, part) == part
    assert m[4096 : 4096 + part] == data.tobytes()[:part]
    with open(path, "rb") as file, memoryview(m) as view:
        assert softfault.readinto(file, view[:100]) == 100
        assert softfault.readinto(file.fileno(), view[100:200]) == 100
    assert m[:100] == data.tobytes()[:100]
    plain = bytearray(10)
    with open(path, "rb", buffering=0) as file:
        assert softfault.readinto(file, plain) == 10 and plain == data.tobytes()[:10]


def test_a_write_to_a_full_pipe_waits_for_another_thread(cold):
    """Which only works if the interpreter's lock is let go."""
    reader, writer = os.pipe()
    got = []

    def drain():
        with open(reader, "rb", buffering=0) as file:
            while data := file.read(1 << 16):
                got.append(data)

    thread = threading.Thread(target=drain)
    thread.start()
    assert cold.write_to(writer, 0, 4 << 20) == 4 << 20
    os.close(writer)
    thread.join()
    assert b"".join(got) == cold[: 4 << 20]


@pytest.mark.parametrize("what", ["fault_in", "slice", "find", "take", "populate"])
def test_others_run_while_pages_are_read(cold, path, engine, what):
    """The interpreter switches threads only where its lock is let go."""
    array = np.frombuffer(cold, dtype=np.int64).reshape(-1, 512)
    calls = {
        "fault_in": lambda at: cold.fault_in([(at * 4096, at * 4096 + 4096)]),
        "slice": lambda at: cold[at * 4096 : at * 4096 + 10],
        "find": lambda at: cold.find(b"absent", at * 4096, at * 4096 + 8192),
        "take": lambda at: softfault.take(array, [at]),
        "populate": lambda at: cold.populate(at * 4096, 4096),
    }
    turns = [0]
    over = threading.Event()

    def other():
        while not over.is_set():
            turns[0] += 1
            time.sleep(0.0001)

    before = sys.getswitchinterval()
    thread = threading.Thread(target=other)
    thread.start()
    sys.setswitchinterval(1000)
    try:
        seen = turns[0]
        # Where a page is read in no time, the other's turn is short: many times, before it is a failure.
        for at in random.Random(2).choices(range(len(array)), k=100_000):
            calls[what](at)
            if turns[0] != seen:
                break
        else:
            pytest.fail("no other thread has run")
    finally:
        sys.setswitchinterval(before)
        over.set()
        thread.join()
        del array


def test_populate_tells_how_far_it_is(cold):
    told = []
    cold.populate(0, 34 << 20, progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (34 << 20, 34 << 20)
    assert [done for done, _ in told] == sorted({done for done, _ in told}) and len(told) > 1


def test_maps_of_the_kernel_alone(engine):
    before = engine.stats()["kernel_other_maps"]
    with open("/dev/zero", "r+b", buffering=0) as device:
        with engine.mmap(device.fileno(), 4096, flags=mmap.MAP_PRIVATE) as m:
            assert not m.managed and m[:5] == bytes(5)
            m[0] = 1
    shared = engine.mmap(-1, 8192)
    child = os.fork()
    if child == 0:
        shared[5] = 77
        os._exit(0)
    os.waitpid(child, 0)
    assert shared[5] == 77
    assert engine.stats()["kernel_other_maps"] - before == 2
    with pytest.raises(OSError, match="MAP_FIXED"):
        engine.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | 0x10)


def test_ranges_that_are_wrong(cold):
    for call in (
        lambda: cold.fault_in([(0, len(cold) + 1)]),
        lambda: cold.fault_in([(5, 4)]),
        lambda: cold.prefetch(len(cold) + 1),
        lambda: cold.populate(0, len(cold) + 1),
    ):
        with pytest.raises(ValueError):
            call()
    cold.fault_in([])
    cold.fault_in([(5, 5), (0, 1)], timeout=300)
    with pytest.raises(TimeoutError):
        cold.fault_in([(at, at + 1) for at in range(0, len(cold), 4096)], timeout=0)


def test_it_can_be_buffered_over(cold, data):
    """Libraries that need a raw file's methods."""
    assert io.BytesIO(cold).getbuffer().nbytes == len(cold)
    assert bytes(memoryview(cold)[:8]) == data[:1].tobytes()
    assert [*zip(range(3), iter(cold))] == [(at, cold[at : at + 1]) for at in range(3)]
    assert cold[:1] in cold


@pytest.mark.parametrize("options", [{}, {"allow_kernel_maps": False, "small_maps": 0}])
def test_resizes_of_a_private_map_of_a_file(tmp_path, options):
    """The file ends where the map does, and the written bytes are the map's, as with the standard library's."""
    path, page = tmp_path / "file", mmap.PAGESIZE
    for offset in (0, page):
        for sizes in ((page,), (70_000,), (100, 5 * page), (3 * page, page, 6 * page), (2 << 20, 100)):
            seen = []
            with softfault.Engine(memory=BUDGET, **options) as engine:
                for make in (mmap.mmap, engine.mmap):
                    path.write_bytes(b"ab" * 10_000)
                    with open(path, "r+b") as file:
                        m = make(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=offset)
                        m[5:8] = m[2 * page + 5 : 2 * page + 8] = b"xyz"
                        for size in sizes:
                            m.resize(size)
                            seen.append((len(m), m.size(), m[:], path.read_bytes()))
                        m[50] = 7
                        m.close()
                    seen.append(path.read_bytes())
            half = len(seen) // 2
            assert seen[:half] == seen[half:], (offset, sizes)


@pytest.mark.skipif(not hasattr(mmap, "MAP_STACK"), reason="this mmap has no MAP_STACK")
def test_private_memory_of_the_kernel_s_is_resized():
    """Flags that an engine does not know leave the memory to the kernel, and private."""
    page = mmap.PAGESIZE
    with softfault.mmap(-1, page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_STACK) as m:
        assert not m.managed
        m[:3] = b"abc"
        m.resize(64 * page)
        assert (len(m), m[:4], m[-1]) == (64 * page, b"abc\0", 0)
        m.resize(page)
        assert (len(m), m[:3]) == (page, b"abc")
    with softfault.mmap(-1, page, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS) as m:
        with pytest.raises(ValueError, match="shared anonymous"):
            m.resize(2 * page)


@pytest.mark.skipif(not hasattr(mmap, "MAP_POPULATE"), reason="this mmap has no MAP_POPULATE")
def test_map_populate_is_advice(engine, path):
    """As in mmap(2): memory that the budget has no room for is mapped, and not brought in."""
    populated = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    with softfault.mmap(-1, 4 * BUDGET, flags=populated) as m:
        assert len(m) == 4 * BUDGET
        m[:3] = b"abc"
        assert m[:4] == b"abc\0"
    with softfault.mmap(-1, BUDGET // 4, flags=populated) as m:
        before = engine.stats()
        m[:] = bytes(len(m))
        assert m.managed is False or engine.stats()["anonymous_faults"] == before["anonymous_faults"]
    with open(path, "rb") as file:
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        with softfault.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as m:
            file.seek(len(m) - 8)
            assert m[-8:] == file.read()


def test_timeouts_at_their_ends(engine, path):
    with softfault.mmap(os.open(path, os.O_RDONLY), 0, access=mmap.ACCESS_READ) as m:
        m.fault_in([(0, 1 << 20)], timeout=float("inf"))
        softfault.fault_in(np.frombuffer(m, dtype="u1")[: 1 << 20], timeout=float("inf"))
        for call in (lambda: m.fault_in([(0, 1)], float("nan")), lambda: softfault.fault_in(m, float("nan"))):
            with pytest.raises(ValueError, match="timeout"):
                call()
        m.fault_in([(0, 0)], timeout=float("-inf"))


def test_anonymous_memory_takes_no_file(tmp_path):
    path = tmp_path / "untouched"
    path.write_bytes(b"x" * (4 << 20))
    for shared in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        with open(path, "r+b") as file:
            with softfault.mmap(file.fileno(), 2 << 20, flags=shared | mmap.MAP_ANONYMOUS) as m:
                assert m[:4] == bytes(4)
                m[:4] = b"abcd"
                m.flush()
    assert path.read_bytes() == b"x" * (4 << 20)


def test_an_iterator_that_its_map_has_is_collected():
    class Map(softfault.mmap):
        pass

    m = Map(-1, 1 << 20, flags=mmap.MAP_PRIVATE)
    m.bytes = iter(m)
    held = weakref.ref(m)
    del m
    gc.collect()
    assert held() is None
