"""fork, spawn, threads, signals and faulthandler: in processes of their own, over memory of four budgets."""

import concurrent.futures
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
import softfault
from conftest import ROWS, numbers, run, served

HERE = pathlib.Path(__file__).parent

CHECKS = """
import faulthandler, os, signal, sys, threading, time
import numpy as np, softfault
sys.path.insert(0, os.getcwd())
from conftest import ROWS, numbers, served
data = numbers(ROWS * 512).reshape(ROWS, 512)
def opened():
    return softfault.memmap(sys.argv[1], dtype="i8", mode="r", shape=(ROWS, 512))
def check(rows, times=1):
    for _ in range(times):
        assert np.array_equal(rows, data)
"""


def epoch(path, rows, worker, workers, number):
    """The work of a loader's worker: its share of the rows, in an order that is drawn; returns how many were right."""
    data = numbers(ROWS * 512).reshape(ROWS, 512)
    order = np.random.default_rng(number).permutation(ROWS)[worker::workers]
    if rows is None:
        rows = softfault.memmap(path, dtype="i8", mode="r", shape=(ROWS, 512), engine=served())
    right = 0
    for at in range(0, len(order), 64):
        batch = order[at : at + 64]
        right += int((rows[batch] == data[batch]).all(axis=1).sum())
    return right


_inherited = None


def of_parents(path, worker, workers, number):
    return epoch(path, _inherited, worker, workers, number)


@pytest.mark.filterwarnings("ignore:This process")
@pytest.mark.parametrize("own", [False, True], ids=["the parent's map", "a map of each"])
def test_a_loader_of_four_workers_by_fork(path, own):
    global _inherited
    with served() as engine:
        rows = softfault.memmap(path, dtype="i8", mode="r", shape=(ROWS, 512))
        rows[::3].sum()
        _inherited = None if own else rows
        with concurrent.futures.ProcessPoolExecutor(4, multiprocessing.get_context("fork")) as pool:
            for number in range(2):
                jobs = [pool.submit(of_parents, path, worker, 4, number) for worker in range(4)]
                rows[:: number + 2].sum()
                assert sum(job.result(timeout=300) for job in jobs) == ROWS
        _inherited = None
        assert np.array_equal(rows[5:9].reshape(-1), numbers(ROWS * 512)[5 * 512 : 9 * 512])
        del rows
        assert engine.stats()["failed_touches"] == 0


def test_a_pool_by_spawn(path):
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(epoch, path, None, worker, 2, 0) for worker in range(2)]
        assert sum(job.result(timeout=300) for job in jobs) == ROWS


@pytest.mark.filterwarnings("ignore:This process")
def test_a_fork_while_threads_touch(path):
    run(CHECKS + """
with served():
    rows = opened()
    private = softfault.empty((ROWS // 8, 512), "i8")
    private[:] = data[: ROWS // 8]
    threads = [threading.Thread(target=check, args=(rows, 3)) for _ in range(3)]
    threads += [threading.Thread(target=lambda: [softfault.take(rows, range(0, ROWS, 3)) for _ in range(3)])]
    for thread in threads: thread.start()
    for _ in range(3):
        child = os.fork()
        if child == 0:
            try:
                check(rows)
                assert np.array_equal(private, data[: ROWS // 8])
                private[5] = 3
                again = opened()
                check(again)
                softfault.take(again, [3, 5])
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr)
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    for thread in threads: thread.join()
    assert np.array_equal(private, data[: ROWS // 8])
    check(rows)
""", path)


@pytest.mark.filterwarnings("ignore:This process")
@pytest.mark.parametrize("kind", ["private", "shared", "file", "file of the kernel's", "private file"])
def test_a_fork_while_a_thread_is_in_a_call(tmp_path, kind):
    """The child resizes its map, and closing it gives its memory up, though the threads that were in calls on it are not there to end those."""
    run(f"""
import errno, mmap, os, sys, threading, traceback
import softfault
from conftest import served
kind, size = {kind!r}, 1 << 20
engine = served(coherence="kernel" if kind == "file of the kernel's" else "engine")
if "file" in kind:
    with open(sys.argv[1], "w+b") as file:
        file.write(b"ab" * (size // 2))
        file.flush()
        m = engine.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE if "private" in kind else mmap.MAP_SHARED)
else:
    m = engine.mmap(-1, size, flags=mmap.MAP_PRIVATE if kind == "private" else mmap.MAP_SHARED)
    m[:] = b"ab" * (size // 2)
address = softfault._native.place_of(m)[0]
def resident():
    "Whether the mapping that has the address has pages."
    with open("/proc/self/smaps") as lines:
        has_it = False
        for first, second, *_ in map(str.split, lines):
            if "-" in first:
                start, end = (int(end, 16) for end in first.split("-"))
                has_it = start <= address < end
            elif has_it and first == "Rss:":
                return second != "0"
    return False
pipes, threads = [os.pipe() for _ in range(2)], []
for _, writing in pipes:
    threads.append(threading.Thread(target=m.write_to, args=(writing,), daemon=True))
    threads[-1].start()
for reading, _ in pipes:
    # A thread is in its call now, since what it writes does not fit in the pipe.
    assert os.read(reading, 1) == b"a"
def child():
    global address
    try:
        m.resize(size // 2)
        assert "file" not in kind and len(m) == size // 2
        address = softfault._native.place_of(m)[0]
    except OSError as error:
        # It is the parent's, whether it has other threads or not.
        assert "file" in kind and error.errno == errno.EOPNOTSUPP
    with memoryview(m) as view:
        assert bytes(view[: size // 2]) == b"ab" * (size // 4) and resident()
    m.close()
    # A window of the engine's stays, with the pages that are the file's.
    assert kind == "file" or not resident()
if (pid := os.fork()) == 0:
    try:
        child()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
for (reading, writing), thread in zip(pipes, threads):
    left = size - 1
    while left:
        left -= len(os.read(reading, left))
    thread.join()
assert m[2:4] == b"ab"
m.close()
""", tmp_path / "file")


@pytest.mark.filterwarnings("ignore:This process")
def test_a_fork_in_a_call_s_own_callback(tmp_path):
    """Leaves the child the memory that its thread is using."""
    run("""
import mmap, os
from conftest import served
m = served().mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE)
pid = None
def progress(*_):
    global pid
    if pid is None:
        pid = os.fork()
        if pid == 0:
            m.close()
m.populate(progress=progress)
if pid == 0:
    os._exit(0 if m.closed else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert m[:2] == bytes(2)
""")


@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_faulthandler(path, when):
    done = run(CHECKS + f"""
if {when!r} != "after": faulthandler.enable()
with served():
    rows = opened()
    if {when!r} != "before": faulthandler.enable()
    check(rows)
    faulthandler.disable()
    check(rows)
    faulthandler.enable()
    check(rows)
    again = opened()
    check(again)
""", path)
    assert done.stderr == "", "no fault of ours is reported"


def test_faulthandler_reports_faults_that_are_not_ours(path):
    code = CHECKS + """
with served():
    rows = opened()
    check(rows)
    faulthandler.enable()
    check(rows)
    signal.raise_signal(signal.SIGBUS)
"""
    done = subprocess.run([sys.executable, "-c", code, path], cwd=HERE, capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGBUS and "Fatal Python error: Bus error" in done.stderr


def test_handlers_are_saved_and_restored_any_number_of_times(path):
    """Failed before: after fifteen installations the touch killed the process, or faulted for ever."""
    body = """
with served() as engine:
    rows = opened()
    handler = lambda *_: None
    for _ in range(40):
        old = signal.signal(signal.SIGBUS, handler)
        signal.signal(signal.SIGBUS, old)
    for _ in range(40):
        faulthandler.enable()
        faulthandler.disable()
    check(rows)
    check(opened())
    assert engine.stats()["faults"] > 100
print("done")
"""
    done = run(CHECKS + body, path)
    assert done.stdout == "done\n" and done.stderr == ""


def test_a_handler_that_stays_in_front_is_reported(path):
    body = """
import ctypes, warnings
libc = ctypes.CDLL(None)
handlers = [ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: None) for _ in range(20)]
with served():
    rows = opened()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for handler in handlers:
            libc.signal(signal.SIGBUS, handler)
            faulthandler.disable()
    assert caught and "SIGBUS handlers" in str(caught[0].message) and caught[0].category is RuntimeWarning
    # One that was there before is known.
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    check(rows)
print("done")
"""
    done = run(CHECKS + body, path)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("faults", ["signals", "threads"])
def test_a_handler_of_sigbus_in_python(path, faults):
    """It gets signals that are not softfault's, and softfault goes on."""
    run(CHECKS + f"""
got = []
signal.signal(signal.SIGBUS, lambda *_: got.append(1))
with served(faults={faults!r}) as engine:
    rows = opened()
    check(rows)
    signal.signal(signal.SIGBUS, lambda *_: got.append(2))
    check(rows)
    signal.raise_signal(signal.SIGBUS)
    assert got == [2], got
""", path)


def test_signals_while_pages_are_read(path):
    run(CHECKS + """
count = [0]
def tick(*_):
    count[0] += 1
    # Enough: where a read takes longer than the timer's pause, one would interrupt the other without end.
    if count[0] == 50: signal.setitimer(signal.ITIMER_REAL, 0)
    rows[count[0] % ROWS].sum()
with served():
    rows = opened()
    signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    at = 0
    while count[0] < 50:
        assert np.array_equal(rows[at : at + 64], data[at : at + 64])
        at = (at + 64) % ROWS
    signal.setitimer(signal.ITIMER_REAL, 0)
""", path)


def test_the_end_of_the_interpreter(path):
    """Maps, arrays, engines and threads that touch may be left as they are."""
    run(CHECKS + """
engine = served()
rows = opened()
private = engine.empty((1000, 512))
private[:] = 1
iterator = iter(rows._mmap)
next(iterator)
thread = threading.Thread(target=check, args=(rows, 1000), daemon=True)
thread.start()
time.sleep(0.05)
""", path)


def test_a_second_interpreter_is_refused():
    code = """
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
import softfault
second = interpreters.create()
try:
    said = interpreters.run_string(second, "import softfault")
    print("raised", said)
except Exception as error:
    print("raised", error)
"""
    said = run(code).stdout
    # The native part says so itself; from Python 3.13 on the interpreter refuses it before.
    refusals = ("sub-interpreters", "softfault._native does not support loading in subinterpreters")
    assert "raised" in said and any(refusal in said for refusal in refusals), said


def test_a_free_threaded_build_is_refused():
    code = """
import sysconfig
before = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else before(name)
try:
    import softfault
except ImportError as error:
    print(error)
"""
    assert "free-threaded" in run(code).stdout
