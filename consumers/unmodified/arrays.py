"""A file of numbers, by numpy.memmap and by the standard library's mmap: summed in order, looked up at random,
written to a pipe and compared as it is read(2)."""

import hashlib
import mmap
import os
import sys

import numpy


def main(path):
    numbers = numpy.memmap(path, dtype=numpy.uint64, mode="r")
    print(numbers.sum(), numbers[:: 4096 // 8].max())
    drawn = numpy.random.default_rng(3).integers(0, len(numbers), 20_000)
    print(numbers[drawn].sum())
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as bytes:
        print(bytes.find(b"needle"), len(bytes), hashlib.sha256(bytes).hexdigest())
        bytes.madvise(mmap.MADV_DONTNEED)
        # A system call that is handed memory that is not there.
        reader, writer = os.pipe()
        at = len(bytes) // 2
        with memoryview(bytes) as view, view[at : at + 4096] as part:
            print(os.write(writer, part), os.read(reader, 4096) == part)


main(sys.argv[1])
