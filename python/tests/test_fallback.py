"""Where there is no userfaultfd, or no native part at all: the same names, and one warning."""

import errno
import pathlib
import platform
import shutil

import pytest
import softfault
from conftest import run

USE = """
import mmap, os, sys, warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import softfault
    import numpy as np
    file = os.path.join(sys.argv[1], "f")
    np.arange(3 << 17, dtype="i8").tofile(file)
    for _ in range(2):
        a = softfault.memmap(file, dtype="i8", mode="r", shape=(-1 % 3072, 128) if False else (3072, 128))
        assert int(a.sum()) == sum(range(3 << 17))
        assert softfault.take(a, [5, -1])[1, 127] == (3 << 17) - 1
        assert a[[3, 2]].shape == (2, 128)
        softfault.fault_in([a[3], a[9]], timeout=300)
        a.tofile(file + ".out")
        assert open(file + ".out", "rb").read() == open(file, "rb").read()
        b = softfault.empty((1000, 10)); b[3] = 1; assert b.sum() == 10
        with softfault.Engine(memory="64M") as engine, open(file, "r+b") as opened:
            m = softfault.mmap(opened.fileno(), 0, access=softfault.ACCESS_READ)
            assert not m.managed and m[8] == 1 and m.find(b"\\x05") == 40
            assert isinstance(m, softfault.mmap)
            with memoryview(m) as view:
                with open(os.devnull, "wb") as null:
                    assert softfault.write(null, view) == len(m) == m.write_to(null.fileno())
            m.fault_in([(0, 10)]); m.prefetch(); m.populate(progress=lambda *_: None)
            try:
                m.populate(write=True); assert False, "it cannot be written to"
            except TypeError:
                pass
            room = bytearray(8); assert m.readinto(room) == 8
            m.close()
            w = engine.mmap(opened.fileno(), 0); w[0] = 7; w.flush(); w.close()
            w = engine.mmap(-1, 4096); w[:2] = b"ab"; w.close()
            assert engine.stats()["kernel_fallback"] is True and engine.stats()["peak_bytes"] == 0
            engine.set_memory("32M"); engine.close_idle()
            np.arange(3 << 17, dtype="i8").tofile(file)
ours = [str(w.message) for w in said if w.category is RuntimeWarning]
assert len(ours) == 1 and "without a budget" in ours[0], ours
try:
    softfault.Engine(fallback="error")
except OSError as error:
    print("error:", error)
"""

NO_NATIVE = """
import sys
sys.modules["softfault._native"] = None
"""

#: userfaultfd answers EPERM, and /dev/userfaultfd cannot be opened by its ioctl.
CLOSED = """
import ctypes, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
code = b"".join(struct.pack("HBBI", *instruction) for instruction in [
    (0x20, 0, 0, 0),                    # the call's number
    (0x15, 0, 1, {number}),             # userfaultfd: on, else past it
    (0x06, 0, 0, 0x00050000 | 1),       # EPERM
    (0x06, 0, 0, 0x7FFF0000),           # allowed
])
filter = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", 4, ctypes.addressof(filter))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0):
    print("not closed", ctypes.get_errno()); sys.exit()
"""


def test_without_the_native_part(tmp_path):
    assert "error: " in run(NO_NATIVE + USE, tmp_path).stdout


def test_it_counts_what_the_native_part_counts():
    from softfault import _fallback

    assert list(_fallback.Engine().stats()) == list(softfault.Engine(memory="64M").stats())


def test_pages_cannot_be_locked_without_the_native_part():
    from softfault import _fallback

    with _fallback.mmap(-1, 4096) as m, pytest.raises(OSError) as raised:
        m.lock()
    assert raised.value.errno == errno.EOPNOTSUPP


def test_a_package_without_the_native_part(tmp_path):
    """As pure Python files are installed, or a source tree is used: the module is not there, and nothing stands in for it."""
    package = pathlib.Path(softfault.__file__).parent
    shutil.copytree(package, tmp_path / "softfault", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    first = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
    last = f"assert softfault.__file__.startswith({str(tmp_path)!r}), softfault.__file__\n"
    assert "error: " in run(first + USE + last, tmp_path).stdout


def test_a_native_part_that_cannot_be_loaded_is_an_error(tmp_path):
    """Only a missing one is done without: the maps of a broken package would have no budget."""
    package = pathlib.Path(softfault.__file__).parent
    shutil.copytree(package, tmp_path / "softfault", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "softfault" / "_native.py").write_text("import a_module_that_is_not_there\n")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
try:
    import softfault
except ModuleNotFoundError as error:
    print("refused:", error.name)
"""
    assert "refused: a_module_that_is_not_there" in run(code).stdout


def test_where_userfaultfd_is_closed(tmp_path):
    number = {"x86_64": 323, "aarch64": 282}.get(platform.machine())
    if number is None:
        pytest.skip("the number of userfaultfd is not known here")
    said = run(CLOSED.replace("{number}", str(number)) + USE, tmp_path).stdout
    if said.startswith("not closed"):
        pytest.skip(f"no filter of calls can be set here: {said}")
    assert "may not use userfaultfd" in said
