"""The position of a map that threads share: no two calls get the same bytes, as with ``mmap.mmap``."""

import threading

import pytest
import softfault
from conftest import served
from test_lock import run_held

#: Two calls on one map: the second begins in another thread, while the first waits for its page.
TWICE = """
PAGE = 4096

def lines(mode):
    "A map of lines of 10 bytes, of which nothing is in memory."
    global count
    count += 1
    path = os.path.join(folder, f"lines{count}")
    with open(path, "wb") as file:
        file.write(b"".join(b"%09d\\n" % line for line in range(2 * MIB // 10)))
    with open(path, "rb" if mode == "r" else "r+b") as file:
        access = softfault.ACCESS_READ if mode == "r" else softfault.ACCESS_WRITE
        return softfault.mmap(file.fileno(), 0, access=access, engine=engine)

def outcome(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def begin(call):
    "Begins a call in a thread of its own, and returns once that waits: it has the interpreter's lock until then."
    begun, answers = threading.Event(), []
    def run():
        begun.set()
        answers.append(outcome(call))
    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    def end():
        thread.join()
        return answers[0]
    return end

def twice(first, second, start=begin):
    "Answers of both. The first waits while `start` begins the second, and says how to get its answer."
    ends = []
    def meanwhile(name):
        if not ends:
            ends.append(start(second))
    held.meanwhile = meanwhile
    answer = outcome(first)
    held.meanwhile = None
    assert ends, "no system call was held: this shows nothing"
    return [answer, ends[0]()]

def failed(*error):
    "Ends the process, as over does."
    sys.__excepthook__(*error)
    os._exit(1)

sys.excepthook = failed
# No thread gives the lock up but where it waits.
sys.setswitchinterval(1000)
"""


def test_two_calls_get_bytes_of_their_own(tmp_path):
    said = run_held(
        TWICE
        + """
first, second = b"000000000\\n", b"000000001\\n"
reads = {
    "read": (lambda m: m.read(10), [first, second]),
    "readline": (lambda m: m.readline(), [first, second]),
    "read_byte": (lambda m: bytes([m.read_byte()]), [b"0", b"0"]),
    "readinto": (lambda m: m.readinto(bytearray(10)), [10, 10]),
}
for name, (call, expected) in reads.items():
    m = lines("r")
    got = twice(lambda: call(m), lambda: call(m))
    assert sorted(got) == expected, (name, got)
    assert m.tell() == 2 * (got[0] if name == "readinto" else len(got[0])), (name, m.tell())

m = lines("r+")
assert twice(lambda: m.write(b"a" * 10), lambda: m.write(b"b" * 10)) == [10, 10]
assert m.tell() == 20 and sorted([m[:10], m[10:20]]) == [b"a" * 10, b"b" * 10], m[:30]
m = lines("r+")
assert twice(lambda: m.write_byte(97), lambda: m.write_byte(98)) == [None, None]
assert m.tell() == 2 and sorted(m[:2]) == [97, 98], m[:10]

for call, moved in ((lambda m: m.readline(), 10), (lambda m: m.read(100), 100)):
    m = lines("r")
    line, sought = twice(lambda: call(m), lambda: m.seek(5, os.SEEK_CUR))
    assert len(line) == moved and sought == m.tell() == moved + 5, (line, sought, m.tell())
over()
""",
        tmp_path,
    )
    assert said.endswith("over\n"), said


def test_two_threads_of_one_iterator_get_bytes_of_their_own(tmp_path):
    said = run_held(
        TWICE
        + """
path = os.path.join(folder, "numbered")
with open(path, "wb") as file:
    file.write(bytes(range(256)) * 16)
with open(path, "rb") as file:
    m = softfault.mmap(file.fileno(), 0, access=softfault.ACCESS_READ, engine=engine)
bytes_of = iter(m)
got = twice(lambda: next(bytes_of), lambda: next(bytes_of))
assert set(got) == {b"\\0", b"\\1"}, got
assert next(bytes_of) == b"\\2"
over()
""",
        tmp_path,
    )
    assert said.endswith("over\n"), said


def test_a_call_that_waited_finds_the_map_closed_or_shorter(tmp_path):
    said = run_held(
        TWICE
        + """
first = b"000000000\\n"
m = lines("r")
def and_close(call):
    end = begin(call)
    m.close()
    return end
got, closed = twice(m.readline, m.readline, and_close)
assert got == first and closed == "ValueError: mmap closed or invalid", (got, closed)

m = lines("r+")
m.seek(MIB)
def each(calls):
    ends = [begin(call) for call in calls]
    return lambda: [end() for end in ends]
_, got = twice(lambda: m[5], [lambda: m.resize(PAGE), lambda: m.write(b"1"), m.read_byte, m.readline], each)
assert got == [None, "ValueError: data out of range", "ValueError: read byte out of range", b""], got
assert m.tell() == MIB and len(m) == PAGE

# A child of fork has no thread that looks for the end of the line.
m = lines("r")
children = []
def meanwhile(name):
    if children:
        return
    children.append(os.fork())
    if children[0] == 0:
        os._exit(42 if m.readline() == first and m.tell() == 10 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 42
held.meanwhile = meanwhile
assert m.readline() == first and children
over()
""",
        tmp_path,
    )
    assert said.endswith("over\n"), said


@pytest.mark.parametrize("coherence", ["kernel", "engine"])
def test_records_of_many_threads(tmp_path, coherence):
    """Each is there once, and is read once."""
    threads, each = 4, 5000
    path = tmp_path / "records"
    path.write_bytes(bytes(threads * each * 10))

    def all_run(run):
        started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()

    with served(coherence=coherence), open(path, "r+b") as file:
        m = softfault.mmap(file.fileno(), 0)

        def write(number):
            for record in range(number, threads * each, threads):
                assert m.write(b"%09d\n" % record) == 10

        all_run(write)
        expected = [b"%09d\n" % record for record in range(threads * each)]
        assert sorted(m[at : at + 10] for at in range(0, len(m), 10)) == expected
        for read in (m.readline, lambda: m.read(10)):
            m.seek(0)
            got = []
            all_run(lambda _, read=read: got.extend(iter(read, b"")))
            assert sorted(got) == expected


def test_a_call_that_fails_leaves_the_position(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * (2 << 20))
    with served(), open(path, "r+b") as file:
        m = softfault.mmap(file.fileno(), 0)
        file.truncate(4096)
        calls = [m.read, m.read_byte, m.readline, lambda: m.readinto(bytearray(9)), lambda: m.write(b"1"), lambda: m.write_byte(1)]
        m.seek(1 << 20)
        for call in calls:
            with pytest.raises(OSError):
                call()
            assert m.tell() == 1 << 20
