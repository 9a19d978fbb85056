"""``softfault.write`` and ``softfault.readinto`` of files that are more than a descriptor."""

import bz2
import errno
import gzip
import io
import lzma
import mmap
import os
import socket
import tempfile

import numpy as np
import pytest
import softfault
from conftest import run, served

SIZE = (2 << 20) + 77


@pytest.fixture
def filled(engine):
    """A map of several steps, and its bytes."""
    content = np.random.default_rng(1).bytes(SIZE)
    with engine.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE) as m:
        m[:] = content
        yield m, content


@pytest.mark.parametrize("kind", [gzip, bz2, lzma])
def test_compressed_files(tmp_path, filled, kind):
    m, content = filled
    path = tmp_path / "compressed"
    with kind.open(path, "wb") as file:
        assert file.write(b"head") == 4
        assert softfault.write(file, m) == SIZE
        assert softfault.write(file, b"tail") == 4
        assert np.frombuffer(m, "u1").view(softfault.array)[:5].write_to(file) == 5
    with kind.open(path, "rb") as file:
        assert file.read() == b"head" + content + b"tail" + content[:5]
    m[:] = bytes(SIZE)
    with kind.open(path, "rb") as file:
        assert file.read(4) == b"head"
        assert softfault.readinto(file, m) == SIZE and m[:] == content
        rest = bytearray(20)
        assert softfault.readinto(file, rest) == 9 and rest[:9] == b"tail" + content[:5]


def test_spooled_files(filled):
    """Whose descriptor, once there is one, is that of a file with bytes in a buffer."""
    m, content = filled
    for most in (0, 10, 2 * SIZE):
        with tempfile.SpooledTemporaryFile(max_size=most) as file:
            file.write(b"head")
            assert softfault.write(file, m) == SIZE
            file.seek(1)
            assert file.read(3) == b"ead"
            got = bytearray(SIZE)
            assert softfault.readinto(file, got) == SIZE and got == content


class Changed(io.FileIO):
    """A file whose bytes are others than its descriptor's."""

    def write(self, data):
        return super().write(bytes(255 - byte for byte in data))

    def read(self, size=-1):
        return bytes(255 - byte for byte in super().read(size))


def test_files_that_change_their_bytes(tmp_path):
    path = tmp_path / "changed"
    with Changed(path, "w") as file:
        assert softfault.write(file, b"\0\1") == 2
    assert path.read_bytes() == b"\xff\xfe"
    got = bytearray(2)
    with Changed(path, "r") as file:
        assert softfault.readinto(file, got) == 2 and got == b"\0\1"
    with io.BufferedWriter(Changed(path, "w")) as file:
        assert softfault.write(file, b"\0\1") == 2
    assert path.read_bytes() == b"\xff\xfe"


def test_files_over_a_descriptor(tmp_path, filled):
    """The bytes of a map need not be in memory for these, and are where the file's position is."""
    m, content = filled
    path = tmp_path / "file"
    for buffering in (0, -1):
        with open(path, "wb", buffering) as file:
            file.write(b"head")
            assert softfault.write(file, m) == SIZE
            assert file.tell() == SIZE + 4 == os.fstat(file.fileno()).st_size, "it is in the file at once"
            file.write(b"tail")
        assert path.read_bytes() == b"head" + content + b"tail"
        got = bytearray(5)
        with open(path, "rb", buffering) as file:
            assert file.read(2) == b"he"
            assert softfault.readinto(file, got) == 5 and got == b"ad" + content[:3]
    with open(path, "r+b") as file:
        assert file.read(2) == b"he"
        assert softfault.write(file, b"re") == 2
        assert softfault.readinto(file, got) == 5 and got == content[:5]
    assert path.read_bytes()[:4] == b"here"


def test_objects_that_have_a_descriptor_alone(filled):
    m, content = filled
    here, there = socket.socketpair()
    with here, there:
        assert softfault.write(here, memoryview(m)[:1000]) == 1000
        got = bytearray(1000)
        assert softfault.readinto(there, got) == 1000 and got == content[:1000]


def test_bytes_for_a_file_s_own_write_that_cannot_be_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * (1 << 20))
    with served() as engine, open(path, "r+b") as file:
        m = engine.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        file.truncate(4096)
        out = io.BytesIO()
        with pytest.raises(OSError), memoryview(m) as view:
            softfault.write(out, view[8192:])
        assert out.getvalue() == b""


def test_an_error_behind_some_bytes_is_raised(tmp_path):
    """Fewer bytes are the file's end, or those that a descriptor which does not wait could take."""
    run(
        """
import contextlib, errno, mmap, os, resource, sys
import softfault
from conftest import served
engine = served(coherence="engine")
size, folder = 4 << 20, sys.argv[1]
m = engine.mmap(-1, size, flags=mmap.MAP_PRIVATE)
path = os.path.join(folder, "half")
with open(path, "w+b") as file:
    file.truncate(size)
    cut = engine.mmap(file.fileno(), 0)
    file.truncate(size // 2)
zeros = os.open("/dev/zero", os.O_RDWR)
for call in (lambda: cut.read_from(zeros), lambda: softfault.readinto(zeros, cut)):
    try:
        sys.exit(f"no error: {call()} of {size}")
    except OSError as error:
        assert error.errno == errno.EFAULT, error
resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))
for call, expected in (
    (lambda out: m.write_to(out.fileno()), errno.EFBIG),
    (lambda out: softfault.write(out, m), errno.EFBIG),
    (lambda out: softfault.write(out, bytes(size)), errno.EFBIG),
    (lambda out: cut.write_to(out.fileno()), errno.EFAULT),
    (lambda out: softfault.write(out, cut), errno.EFAULT),
):
    with open(os.path.join(folder, "out"), "wb") as out:
        try:
            sys.exit(f"no error: {call(out)} of {size}")
        except OSError as error:
            assert error.errno == expected, error
# A pipe that does not wait.
reading, writing = os.pipe()
for end in (reading, writing):
    os.set_blocking(end, False)
most = m.write_to(writing)
assert 0 < most < size and m.read_from(reading) == most
assert softfault.write(writing, m) == most == softfault.readinto(reading, m)
with contextlib.suppress(BlockingIOError):
    sys.exit(f"no error: {m.read_from(reading)}")
""",
        tmp_path,
    )


def test_writes_that_take_less_than_they_are_given():
    class Slow(io.RawIOBase):
        def __init__(self, most):
            self.got, self.most = b"", most

        def writable(self):
            return True

        def write(self, data):
            if len(self.got) >= self.most:
                return None
            self.got += bytes(data[:3])
            return min(len(data), 3)

    slow = Slow(9)
    assert softfault.write(slow, b"0123456") == 7 and slow.got == b"0123456"
    slow = Slow(5)
    assert softfault.write(slow, b"0123456789") == 6 and slow.got == b"012345", "the rest would have to wait"


def test_a_write_that_takes_nothing_is_an_error():
    class Full(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            return 0

    with pytest.raises(OSError, match="took none of 3 bytes"):
        softfault.write(Full(), b"abc")


class Waits(io.RawIOBase):
    """A file of calls that each take some bytes and would have to wait for the rest, or say how many they took."""

    def __init__(self, *takes):
        self.got, self.takes = b"", list(takes)

    def writable(self):
        return True

    def write(self, data):
        took, waits = self.takes.pop(0)
        self.got += bytes(data[: took or 0])
        if not waits:
            return took
        # A class may also raise one that does not say how many.
        raise BlockingIOError(errno.EAGAIN, "full", took) if took else BlockingIOError(errno.EAGAIN, "full")


def test_bytes_that_are_taken_before_a_file_has_to_wait_count():
    for takes, expected in (
        ([(3, True)], 3),
        ([(3, False), (2, True)], 5),
        ([(3, False), (0, True)], 3),
    ):
        file = Waits(*takes)
        assert softfault.write(file, b"0123456789") == expected, takes
        assert file.got == b"0123456789"[:expected]
    with pytest.raises(BlockingIOError):
        softfault.write(Waits((0, True)), b"0123456789")
    with pytest.raises(BlockingIOError):
        softfault.write(Waits((None, False)), b"0123456789")
    assert softfault.write(Waits((3, False), (None, False)), b"0123456789") == 3


def test_a_file_that_has_to_wait_has_not_ended():
    class Reads(io.RawIOBase):
        def __init__(self, *gives):
            self.gives = list(gives)

        def read(self, size=-1):
            return self.gives.pop(0)

    got = bytearray(4)
    with pytest.raises(BlockingIOError):
        softfault.readinto(Reads(None), got)
    assert softfault.readinto(Reads(b"ab", None), got) == 2 and got[:2] == b"ab"
    assert softfault.readinto(Reads(b""), got) == 0


def test_a_file_that_has_to_wait_gets_no_byte_of_an_array_twice(engine):
    a = engine.empty((10,), "u1")
    a[:] = range(10)
    file = Waits((4, True), (6, False))
    done = a.write_to(file)
    assert done == 4 and a[done:].write_to(file) == 6 and file.got == bytes(range(10))
