"""The interpreter's lock, while a call waits for a disk: another thread has it. And a resize, while others look at the map."""

import pathlib

import pytest
from conftest import run

#: The first lines of each program. Modules are imported before system calls are held: imports keep the lock for some.
PROGRAM = """
import gc, io, os, sys, threading
import numpy as np
import softfault
from conftest import served
import holding

MIB = 1 << 20
folder = sys.argv[1]
count = 0

def cold(engine, mode="r"):
    "A map of a new file, of which nothing is in memory."
    global count
    count += 1
    path = os.path.join(folder, f"file{count}")
    with open(path, "wb") as file:
        file.write(b"x" * (2 * MIB))
    with open(path, "rb" if mode == "r" else "r+b") as file:
        access = softfault.ACCESS_READ if mode == "r" else softfault.ACCESS_WRITE
        return softfault.mmap(file.fileno(), 0, access=access, engine=engine)

def over():
    "Ends the process. The interpreter's end would wait for system calls of its own, which no thread answers any more."
    print("over", flush=True)
    os._exit(0)

def dirty(engine):
    m = cold(engine, "r+")
    m[:] = b"y" * len(m)
    return m

engine = served(coherence="engine")
try:
    held = holding.Held()
except holding.Unsupported as why:
    print("skipped:", why)
    sys.exit()
"""


def run_held(code, folder):
    pytest.importorskip("ctypes")
    path = pathlib.Path(__file__).parent
    said = run(PROGRAM + code, folder, PYTHONPATH=str(path)).stdout
    if said.startswith("skipped:"):
        pytest.skip(said)
    return said


def test_every_call_that_waits_lets_others_run(tmp_path):
    said = run_held(
        """
def r():
    return cold(engine)

def w():
    return cold(engine, "r+")

def d():
    return dirty(engine)

def rows(mode="r"):
    cold(engine, mode).close()
    engine.close_idle()
    path = os.path.join(folder, f"file{count}")
    return softfault.memmap(path, dtype="u1", mode=mode, shape=(512, 4096), engine=engine)

def dirty_rows():
    a = rows("r+")
    a[:] = 1
    return a

def flush_while_another_closes(m):
    "The call has the last reference to the map at its end."
    def close(name):
        held.meanwhile = None
        m.close()
    held.meanwhile = close
    m.flush()
    assert m.closed

def idle():
    with r() as m:
        m[:]

def with_swap():
    return softfault.Engine(memory="9M", swap=folder + ":16M")

def smaller(_):
    engine.set_memory("8M")
    engine.set_memory("10M")

zeros = os.open("/dev/zero", os.O_RDWR)
part = slice(5, 9000)
calls = {
    "m[i]": (r, lambda m: m[5]),
    "m[i:j]": (r, lambda m: m[:]),
    "m[i:j:k]": (r, lambda m: m[::4096]),
    "iteration": (r, lambda m: next(iter(m))),
    "m[i] = v": (w, lambda m: m.__setitem__(5, 1)),
    "m[i:j] = v": (w, lambda m: m.__setitem__(part, bytes(8995))),
    "m[i:j:k] = v": (w, lambda m: m.__setitem__(slice(0, 9000, 4096), bytes(3))),
    "m[i:j] = of a map": (lambda: (d(), r()), lambda ms: ms[0].__setitem__(part, memoryview(ms[1])[part])),
    "m[i:j:k] = of a map": (lambda: (d(), r()), lambda ms: ms[0].__setitem__(slice(0, 10, 2), memoryview(ms[1])[5:10])),
    "find": (r, lambda m: m.find(b"y")),
    "rfind": (r, lambda m: m.rfind(b"y")),
    "find of a map": (lambda: (d(), r()), lambda ms: ms[0].find(memoryview(ms[1])[5:9])),
    "read": (r, lambda m: m.read()),
    "readinto": (r, lambda m: m.readinto(bytearray(100))),
    "read_byte": (r, lambda m: m.read_byte()),
    "readline": (r, lambda m: m.readline()),
    "write": (w, lambda m: m.write(b"123")),
    "write_byte": (w, lambda m: m.write_byte(1)),
    "move": (w, lambda m: m.move(9, 5, 9000)),
    "resize to more": (w, lambda m: m.resize(3 * MIB)),
    "resize to less": (d, lambda m: m.resize(MIB + 5)),
    "size": (r, lambda m: m.size()),
    "flush": (d, lambda m: m.flush()),
    "madvise": (r, lambda m: m.madvise(22)),  # MADV_POPULATE_READ
    "populate": (r, lambda m: m.populate()),
    "populate to write": (w, lambda m: m.populate(write=True)),
    "fault_in": (r, lambda m: m.fault_in([(0, 9)])),
    "lock": (r, lambda m: m.lock()),
    "write_to": (r, lambda m: m.write_to(zeros)),
    "read_from": (w, lambda m: m.read_from(zeros, 5, 9000)),
    "close": (d, lambda m: m.close()),
    "flush while another closes": (d, flush_while_another_closes),
    "softfault.write": (r, lambda m: softfault.write(zeros, m)),
    "softfault.readinto": (w, lambda m: softfault.readinto(zeros, memoryview(m)[part])),
    "softfault.readinto of no descriptor": (w, lambda m: softfault.readinto(io.BytesIO(bytes(9000)), memoryview(m)[part])),
    "softfault.fault_in": (r, lambda m: softfault.fault_in(m)),
    "softfault.take": (rows, lambda a: softfault.take(a, [1, 2, 400])),
    "a[indices]": (rows, lambda a: a[[1, 2, 400]]),
    "a.write_to": (rows, lambda a: a.write_to(zeros)),
    "a.flush": (dirty_rows, lambda a: a.flush()),
    "a.populate": (rows, lambda a: a.populate()),
    "set_memory": (lambda: [d() for _ in range(3)], smaller),
    "close_idle": (idle, lambda _: engine.close_idle()),
    "Engine": (lambda: None, lambda _: with_swap()),
}
last = {"the last map of dirty pages": d, "the last engine with swap": with_swap}

main = threading.get_native_id()
def is_held(name, call, *on):
    before = len(held.calls)
    print(name, end=": ", flush=True)
    call(*on)
    own = {call for call, thread in held.calls[before:] if thread == main}
    print(*sorted(own), flush=True)
    assert own, "no system call was held: this shows nothing"

for name, (prepare, call) in calls.items():
    is_held(name, call, prepare())
for name, make in last.items():
    kept = [make()]
    is_held(name, lambda: (kept.clear(), gc.collect()))
over()
""",
        tmp_path,
    )
    assert said.endswith("over\n"), said


def test_a_resize_seen_by_others(tmp_path):
    """While its system call waits, the map is open; calls that begin then see the new length; a child of fork has it closed."""
    said = run_held(
        """
m = cold(engine, "r+")
size, seen, errors, threads = len(m), [], [], []

def other(look):
    def run():
        try:
            seen.append(look())
        except Exception as error:
            errors.append(error)
    threads.append(threading.Thread(target=run))
    threads[-1].start()

def meanwhile(name):
    if name != "ftruncate" or threads:
        return
    assert not m.closed
    child = os.fork()
    if child == 0:
        try:
            len(m)
        except ValueError:
            os._exit(m.closed and bytes(cold(engine)[:2]) == b"xx" and 42)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    seen.append("before")
    other(lambda: len(m))
    other(lambda: len(memoryview(m)))
    other(lambda: len(m[:]))
    other(lambda: int(repr(m).partition("length=")[2].partition(",")[0]))

held.meanwhile = meanwhile
m.resize(size + MIB)
seen.append("after")
held.meanwhile = None
for thread in threads:
    thread.join()
seen.remove("before")
seen.remove("after")
assert errors == [] and seen == [size + MIB] * 4, (errors, seen)

threads.clear()
held.meanwhile = lambda name: threads or other(m.close)
m.resize(size)
held.meanwhile = None
threads[0].join()
assert errors == [] and m.closed
assert os.stat(os.path.join(folder, "file1")).st_size == size
over()
""",
        tmp_path,
    )
    assert said.endswith("over\n"), said
