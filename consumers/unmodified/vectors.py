"""A vector index of usearch: made, or searched where it lies (`view=True`), by several threads."""

import sys
import threading
import time

import numpy
from usearch.index import Index

DIMENSIONS = 256


def vectors(count, seed):
    return numpy.random.default_rng(seed).random((count, DIMENSIONS), dtype=numpy.float32)


def make(path, mib):
    index = Index(ndim=DIMENSIONS, metric="cos", dtype="f32", connectivity=8, expansion_add=16)
    # A vector, its neighbours and its key.
    left, seed = (mib << 20) // (DIMENSIONS * 4 + 85), 0
    while left > 0:
        part = min(left, 10_000)
        index.add(numpy.arange(seed * 10_000, seed * 10_000 + part), vectors(part, seed))
        left, seed = left - part, seed + 1
    index.save(path)


def search(path, queries, threads):
    index = Index.restore(path, view=True)
    wanted = vectors(queries, 1_000_000)
    found = [None] * queries
    took = [0.0] * queries
    place = iter(range(queries))
    lock = threading.Lock()
    begun = time.monotonic()
    first_thousand = []

    def work():
        done = 0
        while True:
            with lock:
                at = next(place, None)
            if at is None:
                return
            start = time.monotonic()
            matches = index.search(wanted[at], 10, threads=1)
            now = time.monotonic()
            found[at] = [int(key) for key in matches.keys]
            took[at] = now - start
            if at == 999:
                first_thousand.append(now - begun)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.monotonic() - begun
    took.sort()
    print(hash(tuple(map(tuple, found))))
    first = f"{first_thousand[0]:.3f}" if first_thousand else "-"
    print(f"first 1,000 {first} s, {queries / seconds:.0f} a second, p99.9 {took[int(queries * 0.999)] * 1e3:.1f} ms", file=sys.stderr)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", path, mib]:
            make(path, int(mib))
        case ["search", path, queries, threads]:
            search(path, int(queries), int(threads))
