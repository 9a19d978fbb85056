"""Measures the package beside numpy, the Rust library and pread: `python python/bench.py --help`.

Each row runs in processes of its own, with the file's pages dropped from the page cache before, and at each of the read-aheads that
are asked for, which are put back. Rows of numpy.memmap are in a memory cgroup of the budget's size (cgroup v1, as root). Those of
softfault that are compared with them are in one of the budget and `--process` more, since the process itself is not in the budget.
Figures are medians. Build with `pip install ./python` and
`cargo build --release --manifest-path python/Cargo.toml --example reads`.
"""

import argparse
import contextlib
import json
import mmap
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
CGROUP = pathlib.Path("/sys/fs/cgroup/memory")
PAGE = 4096


def make_file(path, size):
    import numpy as np

    if path.exists() and path.stat().st_size == size:
        return
    with open(path, "wb") as file:
        for at in range(0, size, 64 << 20):
            part = min(64 << 20, size - at)
            words = np.arange(at // 8, (at + part) // 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            words.tofile(file)
        file.flush()
        os.fsync(file.fileno())


def drop(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def cgroup(limit):
    """A memory cgroup, or None where there can be none."""
    group = CGROUP / f"softfault-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        if limit:
            (group / "memory.limit_in_bytes").write_text(str(limit))
        yield group
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.05)


@contextlib.contextmanager
def read_ahead(device, kib):
    if kib is None:
        yield
        return
    setting = pathlib.Path(f"/sys/block/{device}/queue/read_ahead_kb")
    before = setting.read_text()
    setting.write_text(str(kib))
    try:
        yield
    finally:
        setting.write_text(before)


def child(name, *arguments, group=None, limit=None):
    """The result of a function of this file in a process of its own, which is killed after so many seconds."""
    into = f"{group}/cgroup.procs" if group else ""
    command = [sys.executable, __file__, "--child", name, into, *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {limit:.0f} s"}
    if done.returncode:
        return {"failed": done.stderr.splitlines()[-1:] or done.returncode}
    return json.loads(done.stdout.splitlines()[-1])


def rust(*arguments, group=None):
    reads = HERE / "target/release/examples/reads"
    if "CARGO_TARGET_DIR" in os.environ:
        reads = pathlib.Path(os.environ["CARGO_TARGET_DIR"]) / "release/examples/reads"
    command = [reads, *map(str, arguments)]
    if group:
        command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{group}/cgroup.procs", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(line.split()[0]) for line in done.stdout.splitlines()]


# The work of the processes.


def opened(kind, path, memory, shape=None):
    import numpy as np

    if kind == "numpy":
        return np.memmap(path, dtype="i8", mode="r", shape=shape), None
    import softfault

    reads = "direct" if kind == "direct" else None
    allow_kernel_maps = None if kind == "softfault" else False
    engine = softfault.Engine(memory=memory, allow_kernel_maps=allow_kernel_maps, reads=reads)
    return softfault.memmap(path, dtype="i8", mode="r", shape=shape, engine=engine), engine


def child_sum(kind, path, memory, times):
    a, _ = opened(kind, path, int(memory))
    seconds = []
    for _ in range(int(times)):
        begun = time.perf_counter()
        a.sum()
        seconds.append(time.perf_counter() - begun)
    return seconds


@contextlib.contextmanager
def other_thread():
    """Another thread meanwhile, which sleeps 0.2 ms between looks. Its gaps of 1 ms and more: how long, how long of it the
    thread could run and had no processor, and how often it ran. A gap in which it ran once has no wait for the interpreter's
    lock, which is another sleep.
    """
    gaps, over = [], threading.Event()

    def look():
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as schedstat:

            def waited():
                schedstat.seek(0)
                _, nanoseconds, times = map(int, schedstat.read().split())
                return nanoseconds / 1e9, times

            last, before = time.perf_counter(), waited()
            while not over.is_set():
                time.sleep(0.0002)
                now, after = time.perf_counter(), waited()
                if now - last >= 0.001:
                    gaps.append((now - last, after[0] - before[0], after[1] - before[1]))
                last, before = now, after

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield gaps
    finally:
        over.set()
        thread.join()


def child_pread(path, threads, reads):
    """Threads of pread, and another thread of Python, which has nothing to do with them."""
    with other_thread() as gaps:
        seconds = rust("pread", path, threads, reads)[0]
    return {"seconds": seconds, "gaps": gaps}


def child_alone(spinning, seconds):
    """Another thread, and nothing of ours: beside processes that count, without any system call."""
    count = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(count) for _ in range(int(spinning))]
    try:
        with other_thread() as gaps:
            time.sleep(float(seconds))
    finally:
        for other in others:
            other.kill()
            other.wait()
    return {"gaps": gaps}


def child_take(kind, path, memory, rounds, limit):
    import numpy as np

    size = os.stat(path).st_size
    a, engine = opened(kind, path, int(memory), (size // PAGE, PAGE // 8))
    # Before the other thread looks: the first imports modules of numpy.
    draw = np.random.default_rng(1)
    with other_thread() as gaps:
        rows, seconds = take_rounds(a, draw, int(rounds), float(limit))
    peak = engine.stats()["peak_bytes"] if engine else 0
    return {"rows": rows, "seconds": seconds, "gaps": gaps, "peak": peak}


def take_rounds(a, draw, rounds, limit):
    import numpy as np

    taken, begun = 0, time.perf_counter()
    for _ in range(rounds):
        wanted = draw.integers(0, len(a), 1000)
        got = a[wanted]
        taken += len(got)
        expected = (wanted * (PAGE // 8)).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        assert np.array_equal(got[:, 0].view(np.uint64), expected)
        if time.perf_counter() - begun > limit:
            break
    return taken, time.perf_counter() - begun


def child_index(kind, path, memory, queries, threads, limit, expansion):
    import numpy as np
    from usearch.index import Index

    wanted, threads = np.load(queries), int(threads)
    index = Index.restore(path, view=False) if kind == "memory" else None
    held = None
    if kind == "own":
        index = Index.restore(path, view=True)
    elif kind in ("engine", "softfault"):
        import softfault

        engine = softfault.Engine(memory=int(memory), allow_kernel_maps=False if kind == "engine" else None)
        with open(path, "rb") as file:
            held = softfault.mmap(file.fileno(), 0, access=softfault.ACCESS_READ, engine=engine)
        index = Index.restore(memoryview(held), view=True)
    elif kind == "random":
        with open(path, "rb") as file:
            told = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        told.madvise(mmap.MADV_RANDOM)
        index = Index.restore(memoryview(told), view=True)
    index.expansion_search = int(expansion)
    keys, cold, answered = [], None, 0
    begun = time.perf_counter()
    for at in range(0, len(wanted), 50):
        keys += index.search(wanted[at : at + 50], 10, threads=threads).keys.tolist()
        seconds = time.perf_counter() - begun
        if cold is None and len(keys) >= 1000:
            cold, rest = seconds, time.perf_counter()
        elif cold is not None:
            answered = len(keys) - 1000
        if seconds > float(limit):
            break
    rate = answered / (time.perf_counter() - rest) if answered else None
    peak = engine.stats()["peak_bytes"] if held is not None else 0
    read = next(line for line in open("/proc/self/io") if line.startswith("read_bytes"))
    read = int(read.split()[1])
    return {"keys": keys, "cold": cold, "rate": rate, "seconds": seconds, "peak": peak, "read": read}


def child_fork(path, memory, own, epochs):
    import multiprocessing

    import numpy as np

    size = os.stat(path).st_size
    rows = size // PAGE
    a, engine = opened("engine", path, int(memory), (rows, PAGE // 8))
    context = multiprocessing.get_context("fork")
    results = context.Queue()

    def worker(number):
        mine = a if own == "no" else opened("engine", path, int(memory), (rows, PAGE // 8))[0]
        right = 0
        for epoch in range(int(epochs)):
            order = np.random.default_rng(epoch).permutation(rows)[number::4]
            for at in range(0, len(order), 256):
                wanted = order[at : at + 256]
                words = wanted[:, None].astype(np.uint64) * np.uint64(PAGE // 8) + np.arange(PAGE // 8, dtype=np.uint64)
                got = mine[wanted].view(np.uint64)
                right += int((got == words * np.uint64(0x9E3779B97F4A7C15)).all(axis=1).sum())
        peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
        results.put((right, int(peak.split()[1]) << 10))

    begun = time.perf_counter()
    workers = [context.Process(target=worker, args=(number,)) for number in range(4)]
    for process in workers:
        process.start()
    said = [results.get(timeout=600) for _ in workers]
    for process in workers:
        process.join()
    parent = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return {
        "seconds": time.perf_counter() - begun,
        "right": sum(right for right, _ in said),
        "of": rows * int(epochs),
        "peaks": [peak for _, peak in said] + [int(parent.split()[1]) << 10],
    }


# The rows.


def scan(options, path):
    size, budget = options.size, options.size // 4
    make_file(path, size)
    rates = {}

    def note(name, seconds):
        rates.setdefault(name, []).append(size / seconds / 1e6)

    for _ in range(options.repeat):
        for kib in options.read_ahead:
            at = f", read-ahead {kib} KiB" if kib else ""
            with read_ahead(options.device, kib):
                with cgroup(budget + options.process) as group:
                    drop(path)
                    note(f"rust{at}", rust("sum", path, budget, group=group)[0])
                for kind, name in (("softfault", "softfault.memmap"), ("direct", "softfault.memmap, past the page cache")):
                    with cgroup(budget + options.process) as group:
                        drop(path)
                        note(f"{name}{at}", child("sum", kind, path, budget, 1, group=group)[0])
                with cgroup(budget) as group:
                    drop(path)
                    note(f"numpy.memmap{at}", child("sum", "numpy", path, budget, 1, group=group)[0])
        drop(path)
        note("softfault.memmap, in no cgroup", child("sum", "softfault", path, budget, 1)[0])
    print(f"\nsum of {size >> 20} MiB under {budget >> 20} MiB, cold, MB/s (median of {options.repeat}):")
    for name, values in rates.items():
        print(f"  {name}: {statistics.median(values):.0f}   ({', '.join(f'{v:.0f}' for v in values)})")
    # Of the same round, since the machine is another one a minute later.
    print("  each round's rates by each other, and their median:")
    for kib in options.read_ahead:
        at = f", read-ahead {kib} KiB" if kib else ""
        for ours in ("softfault.memmap", "softfault.memmap, past the page cache"):
            for other in ("rust", "numpy.memmap"):
                by = [mine / its for mine, its in zip(rates[ours + at], rates[other + at])]
                print(f"    {ours} by {other}{at}: {statistics.median(by):.2f}   ({', '.join(f'{v:.2f}' for v in by)})")
    small = path.with_suffix(".small")
    make_file(small, budget // 2)
    print(f"sum of {budget >> 21} MiB under {budget >> 20} MiB, warm, MB/s (median of {options.repeat} processes' medians of 9):")
    warm = {"softfault": [], "engine": [], "numpy": []}
    for _ in range(options.repeat):
        for kind, values in warm.items():
            seconds = child("sum", kind, small, budget, 10)[1:]
            values.append((budget // 2) / statistics.median(seconds) / 1e6)
    for kind, values in warm.items():
        by = statistics.median(mine / its for mine, its in zip(values, warm["numpy"]))
        print(f"  {kind}: {statistics.median(values):.0f}   ({', '.join(f'{v:.0f}' for v in values)}), by numpy {by:.2f}")
    small.unlink()


def take(options, path):
    make_file(path, options.size)
    budget = options.size // 8
    print(f"\n1,000 rows of 4 KiB of {options.size >> 20} MiB under {budget >> 20} MiB, a hundred times, rows/s:")
    ratios, longest = {"engine": [], "direct": [], "softfault": []}, {}

    def note(name, got):
        longest.setdefault(name, []).append(max((gap for gap, _, _ in got["gaps"]), default=0))

    for _ in range(options.repeat):
        drop(path)
        got = child("pread", path, 32, 100_000)
        note("beside 32 threads of pread", got)
        pread = 32 * (100_000 // 32) / got["seconds"]
        print(f"  32 threads of pread: {pread:.0f}, {gap_of(got)}", flush=True)
        for kind, of_kind in ratios.items():
            drop(path)
            got = child("take", kind, path, budget, 100, 60)
            rate = got["rows"] / got["seconds"]
            of_kind.append(rate / pread)
            note(f"beside a[indices] of softfault ({kind})", got)
            print(
                f"  a[indices] of softfault ({kind}): {rate:.0f}, {rate / pread:.2f} x, {gap_of(got)}, peak {got['peak'] >> 20} MiB",
                flush=True,
            )
        for name, spinning in (("nothing", 0), ("two processes that only count", 2)):
            note(f"beside {name}", child("alone", spinning, 1.5))
    for kind, of_kind in ratios.items():
        print(f"  softfault ({kind}) by pread, median: {statistics.median(of_kind):.2f}")
    for name, values in longest.items():
        print(f"  longest gaps of another thread, {name}, ms: {', '.join(f'{1000 * value:.1f}' for value in sorted(values))}")
    for kib in options.read_ahead:
        with read_ahead(options.device, kib), cgroup(budget) as group:
            drop(path)
            got = child("take", "numpy", path, budget, 100, 8, group=group)
            if "failed" in got:
                print(f"  numpy.memmap, read-ahead {kib} KiB: {got}")
                continue
            print(
                f"  a[indices] of numpy.memmap, read-ahead {kib} KiB: {got['rows'] / got['seconds']:.0f} "
                f"({got['rows']} rows), {gap_of(got)}"
            )


def gap_of(got):
    if not got["gaps"]:
        return "no gap of another thread over 1 ms"
    longest, waited, times = max(got["gaps"])
    many = sum(gap > 0.005 for gap, _, _ in got["gaps"])
    return (
        f"longest gap of another thread {longest * 1000:.1f} ms ({waited * 1000:.1f} without a processor, ran {times} times), "
        f"{many} over 5 ms"
    )


def index(options, path):
    import numpy as np
    from usearch.index import Index

    file, queries = path.with_suffix(f".{options.vectors}.usearch"), path.with_suffix(".npy")
    draw = np.random.default_rng(5)
    if not file.exists():
        vectors = draw.standard_normal((options.vectors, 256), dtype=np.float32)
        made = Index(ndim=256, metric="cos", dtype="f32")
        made.add(np.arange(len(vectors)), vectors)
        made.save(str(file))
        del vectors, made
    np.save(queries, np.random.default_rng(6).standard_normal((options.queries, 256), dtype=np.float32))
    size = file.stat().st_size
    budget = max(int(size / options.part), 16 << 20)
    # The process itself, its libraries and its threads are not the budget's: as much room for them in each row.
    process = options.process
    print(
        f"\nusearch, {size >> 20} MiB of index, {options.threads} threads; budget {budget >> 20} MiB, cgroups of "
        f"{budget >> 20} + {process >> 20} MiB; expansion {options.expansion}; at most {options.limit} s a row:",
        flush=True,
    )
    arguments = (file, budget, queries, options.threads, options.limit, options.expansion)
    right = {}

    def show(name, kind, group):
        drop(file)
        got = child("index", kind, *arguments, group=group, limit=3 * options.limit)
        if "failed" in got:
            print(f"  {name}: {got['failed']}", flush=True)
            return
        right.setdefault("keys", got["keys"])
        both = min(len(got["keys"]), len(right["keys"]))
        same = got["keys"][:both] == right["keys"][:both]
        cold = f"first 1,000 answers {got['cold']:.2f} s" if got["cold"] else f"{len(got['keys'])} answers in {got['seconds']:.0f} s"
        rate = f", then {got['rate']:.0f} a second" if got["rate"] else ""
        print(
            f"  {name}: {cold}{rate}, {'the same answers' if same else 'OTHER ANSWERS'}, "
            f"{got['read'] / (1 << 30):.2f} GiB read, peak of the engine {got['peak'] >> 20} MiB",
            flush=True,
        )

    show("in memory", "memory", None)
    for _ in range(options.repeat):
        for kind, name in (("softfault", "softfault.mmap"), ("random", "mmap.mmap with MADV_RANDOM")):
            with cgroup(budget + process) as group:
                show(name, kind, group)
        for kib in options.read_ahead:
            with read_ahead(options.device, kib), cgroup(budget + process) as group:
                show(f"its own view, read-ahead {kib} KiB", "own", group)
    if not options.keep:
        file.unlink()
    queries.unlink()


def fork(options, path):
    size = min(options.size, 512 << 20)
    path = path.with_suffix(".fork")
    make_file(path, size)
    budget = size // 4
    print(f"\nfour workers by fork over {size >> 20} MiB under {budget >> 20} MiB, {options.epochs} epochs:")
    for own, name in (("no", "the parent's map"), ("yes", "a map of each worker's")):
        with cgroup(None) as group:
            drop(path)
            got = child("fork", path, budget, own, options.epochs, group=group)
            used = int((group / "memory.max_usage_in_bytes").read_text()) >> 20 if group else None
        if "failed" in got:
            print(f"  {name}: {got}")
            continue
        peaks = ", ".join(str(peak >> 20) for peak in got["peaks"])
        print(
            f"  {name}: {got['right']} of {got['of']} rows right, {got['seconds']:.1f} s; peaks of the workers and the "
            f"parent {peaks} MiB; all five with the page cache {used} MiB"
        )
    path.unlink()


ROWS = {"scan": scan, "take": take, "index": index, "fork": fork}


def size(text):
    import softfault

    return softfault._engine._size(text)


def main():
    if sys.argv[1:2] == ["--child"]:
        name, into, *arguments = sys.argv[2:]
        if into:
            pathlib.Path(into).write_text(str(os.getpid()))
        print(json.dumps(globals()[f"child_{name}"](*arguments)))
        return
    # Settings are restored when this is interrupted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[[], *ROWS], help="which rows; without any, all")
    parser.add_argument("--size", type=size, default=1 << 30, help="bytes of the file (1G)")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="where the files are made")
    parser.add_argument("--device", default="vda", help="the disk whose read-ahead is set")
    parser.add_argument("--read-ahead", type=lambda text: [int(kib) for kib in text.split(",")], default=[None])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--vectors", type=int, default=100_000, help="vectors of 256 floats in the index")
    parser.add_argument("--process", type=size, default=40 << 20, help="room in the cgroup beside the budget (40M)")
    parser.add_argument("--part", type=float, default=2, help="the index is so many times its budget")
    parser.add_argument("--expansion", type=int, default=16, help="usearch's expansion_search: how far a search looks")
    parser.add_argument("--queries", type=int, default=1500)
    parser.add_argument("--threads", type=int, default=32, help="that are asked for; usearch takes no more than there are processors")
    parser.add_argument("--limit", type=float, default=90, help="seconds after which a search gives up")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--keep", action="store_true", help="keep the file for the next run")
    options = parser.parse_args()
    path = pathlib.Path(options.dir) / "softfault-bench"
    try:
        for name in options.rows or ROWS:
            ROWS[name](options, path)
    finally:
        if not options.keep:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
