"""``memmap``, ``open_memmap``, ``empty``, ``take`` and ``fault_in`` beside numpy's."""

import asyncio
import contextlib
import fcntl
import mmap
import multiprocessing
import os
import pickle
import random

import numpy as np
import pytest
import softfault
from conftest import BUDGET, ROWS, run, served
from softfault import _arrays, aio


@pytest.fixture
def rows(path, engine):
    return softfault.memmap(path, dtype="i8", mode="r", shape=(ROWS, 512))


def test_all_of_four_budgets(rows, data, engine):
    assert isinstance(rows, np.memmap) and rows._mmap.managed
    assert int(rows.sum()) == int(data.sum())
    assert np.array_equal(rows, data.reshape(rows.shape))
    stats = engine.stats()
    assert stats["peak_bytes"] <= BUDGET and stats["evicted"] > 0


@pytest.mark.parametrize("coherence", ["kernel", "engine"])
def test_modes(tmp_path, coherence):
    with served(coherence=coherence):
        for mode in ("r", "c", "r+", "w+", "readonly", "copyonwrite", "readwrite", "write"):
            file = tmp_path / mode
            np.arange(3000, dtype="f4").tofile(file)
            seen = []
            for kind, copy in ((np.memmap, ".numpy"), (softfault.memmap, ".softfault")):
                own = f"{file}{copy}"
                with open(own, "wb") as out:
                    out.write(file.read_bytes())
                a = kind(own, dtype="f4", mode=mode, offset=4000, shape=(20, 5), order="F")
                flags = (a.flags.writeable, a.flags.f_contiguous, a.mode, a.offset, a.dtype, a.shape)
                if a.flags.writeable:
                    a[3] = 8
                    a.flush()
                seen.append((a.tolist(), flags))
                del a
                seen[-1] += (open(own, "rb").read(),)
            assert seen[0] == seen[1], mode
        for wrong in ({"mode": "x"}, {"mode": "w+"}, {"dtype": "f8", "offset": 1}, {"shape": (10**9,), "mode": "r"}):
            errors = []
            for kind in (np.memmap, softfault.memmap):
                with pytest.raises(ValueError) as error:
                    kind(tmp_path / "r", **wrong)
                errors.append(type(error.value))
            assert errors[0] is errors[1], wrong


def test_views_keep_the_map(path, engine, data):
    a = softfault.memmap(path, dtype="i8", mode="r")
    mapped = a._mmap
    view = np.asarray(a[7:9])
    del a
    with pytest.raises(BufferError):
        mapped.close()
    assert view.tolist() == data[7:9].tolist()
    del view
    mapped.close()


def test_pickles_are_copies(rows, data):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(rows[5:7], protocol))
        assert np.array_equal(again, data.reshape(rows.shape)[5:7])


def test_npy_files(tmp_path, engine):
    file = tmp_path / "a.npy"
    a = softfault.open_memmap(file, mode="w+", dtype="i2", shape=(300, 7), fortran_order=True)
    a[:] = np.arange(2100).reshape(300, 7)
    a.flush()
    del a
    b = softfault.open_memmap(file, mode="r")
    assert isinstance(b, softfault.memmap) and b.flags.f_contiguous and not b.flags.writeable
    assert np.array_equal(b, np.load(file)) and b[299, 6] == 2099
    c = engine.open_memmap(file, mode="c")
    c[0, 0] = 9
    assert np.load(file)[0, 0] == 0


def test_tofile_and_write_to_of_cold_memory(rows, path, tmp_path, data):
    expected = path.read_bytes()
    for name, write in (
        ("path", lambda out: rows.tofile(out)),
        ("text path", lambda out: rows.tofile(str(out))),
        ("file", lambda out: [rows.tofile(file) for file in [open(out, "wb")]] and file_closed(out)),
    ):
        out = tmp_path / name
        write(out)
        assert out.read_bytes() == expected, name
    out = tmp_path / "behind"
    with open(out, "wb") as file:
        file.write(b"head")
        rows[3].tofile(file)
        file.write(b"tail")
    assert out.read_bytes() == b"head" + data[3 * 512 : 4 * 512].tobytes() + b"tail"
    for part in (rows[::3, 5:100], rows.T[:2], rows[::-1, ::2]):
        with open(out, "wb") as file:
            assert part.write_to(file) == part.nbytes
        assert out.read_bytes() == np.ascontiguousarray(part).tobytes()
    rows[0, :3].tofile(tmp_path / "text", sep=",")
    assert (tmp_path / "text").read_text() == ",".join(map(str, data[:3]))


@pytest.mark.parametrize("room", [1 << 16, _arrays._STEP])
@pytest.mark.parametrize("drained", [False, True])
def test_write_to_ends_with_a_part_that_is_short(engine, monkeypatch, room, drained):
    """Of an array in another order, whose parts are copied one after the other: what was written are its first bytes."""
    a = engine.empty((4 << 10, 128), "i8", order="F")
    a[:] = np.arange(a.size).reshape(a.shape)
    expected, got, copies = a.tobytes(), bytearray(), _arrays._copies
    assert len(expected) == 4 * _arrays._STEP
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, room)
    for end in (reading, writing):
        os.set_blocking(end, False)

    def drain():
        with contextlib.suppress(BlockingIOError):
            while data := os.read(reading, 1 << 20):
                got.extend(data)

    def drained_between(plain):
        for part in copies(plain):
            drain()
            yield part

    if drained:
        monkeypatch.setattr(_arrays, "_copies", drained_between)
    count = a.write_to(writing)
    drain()
    assert count == len(got) == (len(expected) if drained and room == _arrays._STEP else room)
    assert got == expected[:count]
    monkeypatch.undo()
    with open(writing, "wb", closefd=False) as file, pytest.raises(BlockingIOError) as error:
        a.tofile(file)
    assert error.value.characters_written == room
    drain()
    assert os.write(writing, bytes(room)) == room
    with pytest.raises(BlockingIOError):
        a.write_to(writing)
    for end in (reading, writing):
        os.close(end)


@pytest.mark.parametrize("order", ["C", "F"])
def test_tofile_of_a_file_that_has_no_room_for_all(path, tmp_path, order):
    """Is an error, as numpy's, and says which."""
    run(
        """
import errno, os, resource, sys
import numpy as np
import softfault
from conftest import served
_, path, folder, order = sys.argv
most, shape = 15 << 19, (2048, 512)
with served():
    arrays = [softfault.memmap(path, dtype="i8", mode="r", shape=shape, order=order), softfault.empty(shape, order=order)]
arrays.append(np.ones(shape, order=order))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
for number, array in enumerate(arrays):
    out = os.path.join(folder, str(number))
    for write in (array.tofile, lambda out: array.tofile(file)):
        with open(out, "wb") as file:
            try:
                write(out)
                print("no error of", type(array), os.path.getsize(out), "of", array.nbytes)
                sys.exit(1)
            except OSError as error:
                assert type(array) is np.ndarray or error.errno == errno.EFBIG, error
            assert file.tell() in (0, most) and os.path.getsize(out) == most, (file.tell(), os.path.getsize(out))
""",
        path,
        tmp_path,
        order,
    )


def test_tofile_of_an_array_whose_file_became_shorter(tmp_path):
    path, out = tmp_path / "shorter", tmp_path / "out"
    np.arange(1 << 19, dtype="u8").tofile(path)
    for coherence, mode in (("kernel", "r+"), ("kernel", "r"), ("engine", "r+")):
        with served(coherence=coherence):
            a = softfault.memmap(path, dtype="u8", mode=mode)
        os.truncate(path, 2 << 20)
        with pytest.raises(OSError):
            a.tofile(out)
        assert out.stat().st_size < a.nbytes
        os.truncate(path, 4 << 20)


def file_closed(out):
    import gc

    gc.collect()
    return out


def test_take(rows, data):
    plain = data.reshape(rows.shape)
    draw = np.random.default_rng(1)
    for wanted in (
        draw.integers(-ROWS, ROWS, 3000),
        draw.integers(0, ROWS, (7, 11), dtype=np.uint16),
        [],
        5,
        [0, 0, ROWS - 1, -ROWS],
        np.array([], dtype="i4"),
    ):
        expected = np.take(plain, wanted, axis=0) if np.size(wanted) else plain[np.asarray(wanted, dtype=int)]
        got = softfault.take(rows, wanted)
        assert got.shape == expected.shape and np.array_equal(got, expected)
    for view, same in ((rows[::-1], plain[::-1]), (rows[100:], plain[100:]), (rows[::7], plain[::7]), (rows[:, 5:9], plain[:, 5:9]), (rows[:, ::3], plain[:, ::3]), (rows[:50].T, plain[:50].T)):
        assert np.array_equal(softfault.take(view, [3, -2, 3]), same[[3, -2, 3]])
    assert np.array_equal(softfault.take(rows.reshape(-1), [7, 8]), data[7:9])
    one, out = softfault.take(rows.reshape(-1), 7), np.empty((), dtype="i8")
    assert type(one) is type(np.take(data, 7)) and one == data[7], "an item, and no array"
    assert softfault.take(rows.reshape(-1), -1, out=out) is out and out == data[-1]
    out = np.empty((2, 512), dtype="i8")
    assert softfault.take(rows, [9, 1], out=out) is out and np.array_equal(out, plain[[9, 1]])
    for wrong, error in (([ROWS], IndexError), ([-ROWS - 1], IndexError), ([0.5], TypeError), ([True], TypeError)):
        with pytest.raises(error):
            softfault.take(rows, wrong)
    with pytest.raises(ValueError):
        softfault.take(rows, [1], out=out)
    assert np.array_equal(softfault.take(plain, [4]), plain[[4]]), "of memory that is no map's"


def test_indexing_by_rows_is_as_numpys(rows, data):
    plain = data.reshape(rows.shape)
    draw = np.random.default_rng(2)
    for index in (
        draw.integers(0, ROWS, 100),
        [3, 1, 2],
        [True, False] * (ROWS // 2),
        (slice(None), [1, 2]),
        ([1, 2], [3, 4]),
        draw.integers(0, 2, ROWS).astype(bool),
        3,
        slice(5, 50, 5),
        None,
        ...,
        np.array([[1, 2], [3, 4]]),
    ):
        got, expected = rows[index], plain[index]
        assert got.shape == expected.shape and np.array_equal(got, expected)
    assert type(rows[[3, 1]]) is np.ndarray and type(rows[3:5]) is softfault.memmap


def test_fault_in(rows, engine):
    before = engine.stats()["major_faults"]
    softfault.fault_in([rows[at] for at in range(0, ROWS, 997)] + [rows[5:9, ::2], b"plain", np.zeros(3)])
    softfault.fault_in(rows[7])
    rows[9:12].fault_in(timeout=300)
    assert engine.stats()["bytes_read"] > 0
    after = engine.stats()["major_faults"]
    assert rows[997, 5] == rows[997, 5]
    assert engine.stats()["major_faults"] == after >= before, "it is in memory"
    with pytest.raises(TimeoutError):
        softfault.fault_in(rows, timeout=0)


def test_asyncio(rows, data):
    plain = data.reshape(rows.shape)

    async def all_at_once():
        draw = random.Random(3)
        wanted = [draw.sample(range(ROWS), 50) for _ in range(20)]
        got = await asyncio.gather(*(aio.take(rows, some) for some in wanted), aio.fault_in(rows[3]))
        return all(np.array_equal(g, plain[w]) for g, w in zip(got, wanted))

    assert asyncio.run(all_at_once())


def test_memory_larger_than_memory(tmp_path):
    with served(swap=(tmp_path, "64M")) as engine:
        a = engine.empty((ROWS, 512), "i8")
        assert type(a) is softfault.array
        a[:] = np.arange(1, ROWS + 1)[:, None]
        assert all(int(a[at, 77]) == at + 1 for at in random.Random(4).sample(range(ROWS), ROWS))
        assert softfault.take(a, [5, -1])[:, 3].tolist() == [6, ROWS]
        stats = engine.stats()
        assert stats["peak_bytes"] <= BUDGET and stats["swap_pages_out"] > ROWS // 2
        assert type(a + 1) is np.ndarray and type(a[1:3]) is softfault.array and np.isscalar(a[:2].sum())
        a.tofile(tmp_path / "out")
        assert (tmp_path / "out").stat().st_size == a.nbytes
    with served():
        small = softfault.empty((3, 0)), softfault.empty(5, "f4", order="F")
        assert [s.sum() for s in small] == [0, 0]
        with pytest.raises(TypeError):
            softfault.empty(3, object)
        without_swap = softfault.empty(2 * BUDGET, "u1")
        with pytest.raises(MemoryError):
            without_swap.populate(write=True)


def test_take_of_a_file_that_became_shorter_is_an_error(tmp_path):
    """Also of a map that the kernel alone can make: a touch of its own would be SIGBUS."""
    path = tmp_path / "shorter"
    np.arange(4096, dtype="u8").tofile(path)
    with open(path, "r+b") as file:
        m = softfault.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
        rows = np.frombuffer(m, dtype="u8").reshape(8, 512)
        assert np.array_equal(softfault.take(rows, [7, 0]), rows[[7, 0]])
        file.truncate(4096)
        assert np.array_equal(softfault.take(rows, [0]), rows[:1])
        with pytest.raises(OSError):
            softfault.take(rows, [0, 7])


def test_dates(engine, tmp_path):
    """numpy gives no buffer of them to those that ask for its format."""
    dates = np.arange("2026-01-01", "2026-01-11", dtype="M8[D]")
    path = tmp_path / "dates"
    with engine, engine.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE) as m:
        m[:80] = dates
        assert np.array_equal(np.frombuffer(m[:80], "M8[D]"), dates)
        m.seek(80)
        assert m.write(dates) == 80
        with open(path, "wb") as file:
            assert softfault.write(file, dates) == 80
    mapped = softfault.memmap(path, "M8[D]", mode="r")
    mapped.fault_in()
    softfault.fault_in(mapped)
    assert np.array_equal(mapped, dates)


def test_wrong_indices_are_index_errors(tmp_path):
    path = tmp_path / "rows"
    np.arange(4096, dtype="u8").tofile(path)
    rows = softfault.memmap(path, "u8", mode="r")
    none = softfault.memmap(path, "u8", mode="r", shape=())
    for array, index in ((none, [0, 0]), (rows, [0, 2**70])):
        with pytest.raises(IndexError):
            array[index]


def test_rows_larger_than_a_step_go_to_another_map():
    with softfault.Engine(memory="64M"):
        rows = softfault.empty((2, 6 << 20), "u1")
        rows[0], rows[1] = 1, 2
        out = softfault.empty((2, 6 << 20), "u1")
        softfault.take(rows, [1, 0], out=out)
        assert (out[0] == 2).all() and (out[1] == 1).all()
