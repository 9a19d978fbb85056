"""Budgets, and which one a map is made under."""

import asyncio
import concurrent.futures
import contextvars
import mmap
import os
import threading

import pytest
import softfault
from conftest import BUDGET, run, served


def test_with_blocks_nest(path):
    with served() as outer:
        with softfault.Engine(memory="12M") as inner:
            assert softfault.current_engine() is inner
            with outer:
                assert softfault.current_engine() is outer
        assert softfault.current_engine() is outer
        with open(path, "rb") as file:
            m = softfault.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            other = softfault.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, engine=inner)
    assert softfault.current_engine() not in (outer, inner)
    before = outer.stats()["bytes_read"], inner.stats()["bytes_read"]
    assert m[5 << 20] == other[5 << 20]
    assert outer.stats()["bytes_read"] > before[0], "a map outlives its block"
    assert inner.stats()["windows"] == outer.stats()["windows"] == 1


def test_each_task_has_its_own():
    async def task(size):
        with softfault.Engine(memory=size) as engine:
            await asyncio.sleep(0.01)
            return softfault.current_engine() is engine

    async def both():
        return await asyncio.gather(task("9M"), task("10M"))

    assert asyncio.run(both()) == [True, True]


@pytest.mark.parametrize("inner_first", [True, False])
def test_tasks_are_in_a_block_of_one_engine(inner_first):
    async def task(entered, wait_for, left):
        before = softfault.current_engine()
        with engine:
            entered.set()
            await wait_for.wait()
            assert softfault.current_engine() is engine
        assert softfault.current_engine() is before
        left.set()

    async def both():
        entered, left = (asyncio.Event(), asyncio.Event()), (asyncio.Event(), asyncio.Event())
        first = task(entered[0], left[1] if inner_first else entered[1], left[0])
        await asyncio.gather(first, task(entered[1], entered[0] if inner_first else left[0], left[1]))

    with served() as other, served() as engine, other:
        asyncio.run(both())
        assert softfault.current_engine() is other


def test_threads_are_in_a_block_of_one_engine():
    engine = served()
    entered, left = threading.Event(), threading.Event()

    def first():
        with engine:
            assert entered.wait(60)
        left.set()
        return softfault.current_engine()

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        answer = thread.submit(first)
        with engine:
            entered.set()
            assert left.wait(60)
            assert softfault.current_engine() is engine
        assert softfault.current_engine() is answer.result() is not engine


def test_a_block_is_left_in_the_context_that_entered_it():
    engine = served()
    contextvars.Context().run(engine.__enter__)
    with pytest.raises(RuntimeError):
        engine.__exit__()


def test_budgets_change(path):
    with served() as engine:
        a = softfault.memmap(path, mode="r")
        a.sum()
        engine.set_memory("9M")
        assert engine.stats()["budget_bytes"] == 9 << 20
        assert engine.stats()["resident_bytes"] <= 9 << 20
        assert "memory=9437184" in repr(engine)
        with pytest.raises(OSError):
            engine.set_memory(4096)
    engine.close_idle()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"memory": "1.5G"}, ValueError),
        ({"memory": 1.5}, TypeError),
        ({"memory": 4096}, OSError),
        ({"reads": "fast"}, ValueError),
        ({"coherence": "none"}, ValueError),
        ({"faults": "never"}, ValueError),
        ({"compression": "lz4"}, TypeError),
        ({"swap": "/no/such/folder"}, FileNotFoundError),
        ({"swap": "/etc/passwd"}, NotADirectoryError),
        ({"swap": "/tmp:lots"}, ValueError),
        ({"color": "red"}, TypeError),
    ],
)
def test_options_that_are_refused(options, error):
    with pytest.raises(error):
        softfault.Engine(**options)
    with pytest.raises(TypeError):
        softfault.mmap(-1, 4096, flags=mmap.MAP_PRIVATE, engine=3)


def test_the_default_engine_follows_the_environment(tmp_path):
    code = "import softfault; s = softfault.stats(); print(s['budget_bytes'], s['swap_slots_total'])"
    said = run(code, SOFTFAULT_MEMORY="24M", SOFTFAULT_SWAP=f"{tmp_path}:64M").stdout.split()
    assert said == [str(24 << 20), str(16384)]
    said = run("import softfault; softfault.set_memory('32M'); " + code, SOFTFAULT_MEMORY="24M").stdout.split()
    assert said[0] == str(32 << 20)
    code = "import softfault\ntry: softfault.stats()\nexcept ValueError as error: print(error)"
    assert run(code, SOFTFAULT_MEMORY="much").stdout.startswith("SOFTFAULT_MEMORY=much: ")
    assert run(code, SOFTFAULT_SWAP="/tmp:much").stdout.startswith("SOFTFAULT_SWAP=/tmp:much: ")


def test_the_default_engine_is_asked_for_while_its_thread_makes_it():
    """By a handler of a signal, for example, which runs in between."""
    said = run("""
import signal, sys
import softfault
inner = []
signal.signal(signal.SIGUSR1, lambda *_: inner.append(softfault.current_engine()))
def in_the_midst(frame, event, _):
    if event == "call" and frame.f_code.co_name == "_warn_once" and not inner:
        sys.setprofile(None)
        signal.raise_signal(signal.SIGUSR1)
# One that waits for itself ends here.
signal.alarm(120)
for child in ("the process itself", "a child of fork"):
    sys.setprofile(in_the_midst)
    outer = softfault.current_engine()
    assert inner == [outer] and softfault.current_engine() is outer
    if child == "the process itself":
        import os
        softfault._engine._default = None
        inner.clear()
        if pid := os.fork():
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print("over")
""").stdout
    assert said == "over\n"


def test_a_budget_that_is_set_while_another_thread_makes_the_default_engine():
    said = run("""
import sys, threading
import softfault
other = threading.Thread(target=softfault.set_memory, args=("24M",))
def in_the_midst(frame, event, _):
    if event == "call" and frame.f_code.co_name == "_warn_once":
        sys.setprofile(None)
        other.start()
        # It has to wait, and may be over only if it did not.
        other.join(1)
softfault.set_memory("32M")
sys.setprofile(in_the_midst)
softfault.current_engine()
other.join()
print(softfault.stats()["budget_bytes"] >> 20)
""").stdout
    assert said == "24\n"


def test_a_budget_that_is_set_while_its_own_thread_makes_the_default_engine():
    """By a handler of a signal, which runs in between."""
    said = run("""
import signal, sys
import softfault
signal.signal(signal.SIGUSR1, lambda *_: softfault.set_memory("24M"))
def in_the_midst(frame, event, _):
    if event == "call" and frame.f_code.co_name == "_warn_once":
        sys.setprofile(None)
        signal.raise_signal(signal.SIGUSR1)
softfault.set_memory("32M")
sys.setprofile(in_the_midst)
softfault.current_engine()
print(softfault.stats()["budget_bytes"] >> 20)
""").stdout
    assert said == "24\n"


def test_plain_calls_work_by_messages(path, tmp_path):
    """os.write of cold memory, where the system allows faults of the kernel's own to be served."""
    code = """
import os, sys, softfault
try:
    engine = softfault.Engine(memory="10M", allow_kernel_maps=False, small_maps=0, reads="direct", faults="messages", fallback="error")
except OSError as error:
    print("closed:", error); sys.exit()
a = softfault.memmap(sys.argv[1], mode="r", engine=engine)
fd = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
at = 0
while at < len(a):
    at += os.write(fd, a[at : at + (1 << 20)])
print("written")
"""
    said = run(code, path, tmp_path / "out").stdout
    if said.startswith("closed"):
        pytest.skip(f"faults by messages are not allowed here: {said}")
    assert (tmp_path / "out").read_bytes() == path.read_bytes()


def test_a_child_s_threads_build_its_engine_at_once(tmp_path):
    """One builds, and no other keeps the interpreter's lock or the engine's own meanwhile."""
    code = """
import os, sys, threading
import softfault
engine = softfault.Engine(memory="8M", swap=sys.argv[1] + ":64M")
child = os.fork()
if child == 0:
    import signal
    signal.alarm(120)
    begin, answers = threading.Barrier(4), []
    def ask():
        begin.wait()
        for _ in range(3):
            answers.append(engine.stats()["budget_bytes"])
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(answers != [8 << 20] * 12)
print(os.waitpid(child, 0)[1])
"""
    assert run(code, tmp_path).stdout == "0\n"
