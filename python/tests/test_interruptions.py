"""Signals, and other threads, while a call waits."""

import os
import platform
import signal
import threading

import numpy as np
import pytest
import softfault
from conftest import ROWS, run, served


class Raised(Exception):
    pass


@pytest.fixture
def handler():
    """A handler of SIGALRM that raises, in the main thread."""

    def raises(*_):
        raise Raised

    before = signal.signal(signal.SIGALRM, raises)
    yield
    signal.signal(signal.SIGALRM, before)


def when(ready, then):
    """Calls a function once the other is true, in another thread."""

    def look():
        while not ready():
            threading.Event().wait(0.001)
        then()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    return thread


def signal_this():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)


def test_a_handler_s_exception_ends_take(path, handler):
    with served():
        rows = softfault.memmap(path, dtype="i8", mode="r", shape=(ROWS, 512))
    out = np.zeros((4 * ROWS, 512), dtype="i8")
    # More than once: on a busy machine the signal may come when all is taken.
    for _ in range(20):
        out[0, 0] = out[-1, 0] = 0
        sender = when(lambda: out[0, 0] != 0, signal_this)
        with pytest.raises(Raised):
            softfault.take(rows, np.tile(np.arange(ROWS), 4), out)
            sender.join()
            threading.Event().wait(60)
        if out[-1, 0] == 0:
            break
    else:
        pytest.fail("all was taken")


#: A resize that waits for another thread's call, which waits for a pipe, when the interpreter exits. The threads have no frame of the
#: program's, which would keep `last`.
EXIT = """
import os, mmap, softfault, threading, time

class Last:
    map = softfault.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE)

    def __del__(self):
        try:
            {use}
        except RuntimeError as error:
            print("refused:", error)

last = Last()
reading, _writing = os.pipe()
for call, arguments in (last.map.read_from, (reading, 0, 10)), (last.map.resize, (2 << 20,)):
    threading.Thread(target=call, args=arguments, daemon=True).start()
    time.sleep(0.1)
del call
"""


@pytest.mark.parametrize("use", ["len(self.map)", "self.map.tell()"])
def test_an_exit_does_not_wait_for_a_resize(use):
    """Of a daemon thread, which does not run any more then. On a busy machine the resize may have ended before."""
    run(EXIT.replace("{use}", use))


def test_a_handler_s_exception_ends_fault_in(path, engine, handler):
    m = softfault.mmap(os.open(path, os.O_RDONLY), 0, access=softfault.ACCESS_READ)
    # Each pass reads all of it again: the budget does not hold it.
    passes = 100
    when(lambda: engine.stats()["bytes_read"] > 0, signal_this)
    # One call: between two of them the interpreter runs the handler, whatever the call does.
    with pytest.raises(Raised):
        m.fault_in([(0, len(m))] * passes)
    assert engine.stats()["bytes_read"] < passes * len(m) // 4


def test_a_handler_s_exception_ends_populate(tmp_path, handler):
    steps, step = 64, 16 << 20
    file = tmp_path / "holes"
    with file.open("wb") as made:
        made.truncate(steps * step)
    with served(), file.open("rb") as opened:
        m = softfault.mmap(opened.fileno(), 0, access=softfault.ACCESS_READ)
    seen = {}
    when(lambda: seen, signal_this)
    # No function of Python's, in which the interpreter would run the handler.
    with pytest.raises(Raised):
        m.populate(progress=seen.__setitem__)
    assert 0 < len(seen) < steps


def full_pipe():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)
    return reading, writing


SYSTEM_CALLS = {
    "x86_64": {"read": 0, "write": 1},
    "aarch64": {"read": 63, "write": 64},
    "riscv64": {"read": 63, "write": 64},
}


def system_call():
    """The number of the system call that the main thread is in, as text, or "running"."""
    with open(f"/proc/self/task/{threading.main_thread().native_id}/syscall") as file:
        return file.read().split()[0]


@pytest.fixture
def is_in():
    """Says if the main thread is in a system call of this name."""
    numbers = SYSTEM_CALLS.get(platform.machine())
    if numbers is None:
        pytest.skip(f"the numbers of system calls are not known here: {platform.machine()}")
    try:
        system_call()
    except OSError as error:
        pytest.skip(f"the system call of a thread cannot be read: {error}")
    return lambda name: system_call() == str(numbers[name])


@pytest.mark.parametrize("what", ["write", "write of others' bytes", "write_to"])
def test_a_handler_s_exception_ends_a_write_that_waits(path, engine, handler, is_in, what):
    m = softfault.mmap(os.open(path, os.O_RDONLY), 0, access=softfault.ACCESS_READ)
    reading, writing = full_pipe()
    calls = {
        "write": lambda: softfault.write(writing, m),
        "write of others' bytes": lambda: softfault.write(writing, bytes(1 << 20)),
        "write_to": lambda: m.write_to(writing),
    }
    when(lambda: is_in("write"), signal_this)
    # If the signal came to nothing: no reader is an error.
    threading.Timer(20, os.close, (reading,)).start()
    with pytest.raises(Raised):
        calls[what]()


@pytest.mark.parametrize("what", ["readinto", "readinto of others' bytes", "read_from"])
def test_a_handler_s_exception_ends_a_read_that_waits(engine, handler, is_in, what):
    memory = softfault.mmap(-1, 1 << 20, flags=softfault.MAP_PRIVATE)
    reading, writing = os.pipe()
    calls = {
        "readinto": lambda: softfault.readinto(reading, memory),
        "readinto of others' bytes": lambda: softfault.readinto(reading, bytearray(1 << 20)),
        "read_from": lambda: memory.read_from(reading),
    }
    when(lambda: is_in("read"), signal_this)
    threading.Timer(20, os.close, (writing,)).start()
    with pytest.raises(Raised):
        calls[what]()


def test_a_handler_that_raises_nothing_ends_no_call(engine, is_in):
    """A write goes on behind it, with every byte."""
    reading, writing = full_pipe()
    count = []
    before = signal.signal(signal.SIGALRM, lambda *_: count.append(1))
    got = bytearray()

    def read():
        while data := os.read(reading, 1 << 16):
            got.extend(data)

    def signals_then_reads():
        signal_this()
        when(lambda: count, read).join()

    data = np.arange(1 << 16, dtype="i8")
    rows = softfault.empty(1 << 16, dtype="i8")
    rows[:] = data
    reader = when(lambda: is_in("write"), signals_then_reads)
    assert softfault.write(writing, rows) == data.nbytes
    os.close(writing)
    # To the end: what filled the pipe comes before the rows.
    reader.join()
    assert count and bytes(got[-data.nbytes :]) == data.tobytes()
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("coherence", ["kernel", "engine"])
def test_a_resize_waits_for_the_calls_of_others(tmp_path, coherence):
    path = tmp_path / "file"
    path.write_bytes(b"x" * (1 << 20))
    over, errors = threading.Event(), []
    with served(coherence=coherence), open(path, "r+b") as file:
        m = softfault.mmap(file.fileno(), 0)

        def read():
            try:
                while not over.is_set():
                    assert m[:10] == b"x" * 10 and not m.closed and m.size() >= 4096
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for step in range(200):
            m.resize(4096 * (1 + step % 20))
        over.set()
        for thread in threads:
            thread.join()
        assert errors == [] and len(m) == path.stat().st_size == 4096 * 20


def test_a_resize_in_a_call_s_own_callback_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    with served(), open(path, "r+b") as file:
        m = softfault.mmap(file.fileno(), 0)
        with pytest.raises(BufferError, match="in a call"):
            m.populate(progress=lambda *_: m.resize(4096))
        assert len(m) == 1 << 20 and m[:1] == b"\0"


def test_a_thread_that_blocks_all_signals_touches(path):
    run(
        """
import signal, sys, threading, numpy as np, softfault
from conftest import ROWS, served
with served():
    rows = softfault.memmap(sys.argv[1], dtype="i8", mode="r", shape=(ROWS, 512))
def touch():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    rows[: ROWS // 2].sum()
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    rows[ROWS // 2 :].sum()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
thread = threading.Thread(target=touch)
thread.start()
thread.join()
print("over")
""",
        path,
    )
