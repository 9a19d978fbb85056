"""Signals, and other threads, while a call waits."""

import os
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


def test_a_handler_s_exception_ends_fault_in(path, engine, handler):
    m = softfault.mmap(os.open(path, os.O_RDONLY), 0, access=softfault.ACCESS_READ)
    when(lambda: engine.stats()["bytes_read"] > 0, signal_this)
    with pytest.raises(Raised):
        while True:
            # Each call is of several parts.
            m.fault_in([(0, len(m))] * 8)


def full_pipe():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)
    return reading, writing


def in_a_system_call(number):
    """True while the main thread is in this system call."""
    try:
        with open(f"/proc/self/task/{threading.main_thread().native_id}/syscall") as file:
            return file.read().split()[0] == str(number)
    except OSError:
        return True


@pytest.mark.parametrize("what", ["write", "write of others' bytes", "write_to"])
def test_a_handler_s_exception_ends_a_write_that_waits(path, engine, handler, what):
    m = softfault.mmap(os.open(path, os.O_RDONLY), 0, access=softfault.ACCESS_READ)
    reading, writing = full_pipe()
    calls = {
        "write": lambda: softfault.write(writing, m),
        "write of others' bytes": lambda: softfault.write(writing, bytes(1 << 20)),
        "write_to": lambda: m.write_to(writing),
    }
    # The number of write(2) on x86-64; any other machine's test is a weaker one.
    when(lambda: in_a_system_call(1), signal_this)
    # If the signal came to nothing: no reader is an error.
    threading.Timer(20, os.close, (reading,)).start()
    with pytest.raises(Raised):
        calls[what]()


@pytest.mark.parametrize("what", ["readinto", "readinto of others' bytes", "read_from"])
def test_a_handler_s_exception_ends_a_read_that_waits(engine, handler, what):
    memory = softfault.mmap(-1, 1 << 20, flags=softfault.MAP_PRIVATE)
    reading, writing = os.pipe()
    calls = {
        "readinto": lambda: softfault.readinto(reading, memory),
        "readinto of others' bytes": lambda: softfault.readinto(reading, bytearray(1 << 20)),
        "read_from": lambda: memory.read_from(reading),
    }
    when(lambda: in_a_system_call(0), signal_this)
    threading.Timer(20, os.close, (writing,)).start()
    with pytest.raises(Raised):
        calls[what]()


def test_a_handler_that_raises_nothing_ends_no_call(engine):
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
    reader = when(lambda: in_a_system_call(1), signals_then_reads)
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
