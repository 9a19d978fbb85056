"""An LMDB environment: made, or read by a program that opens it read-only, beside a writer if one is wanted."""

import hashlib
import random
import sys

import lmdb


def make(path, mib):
    with lmdb.open(path, map_size=(mib + 64) << 20, sync=False) as env:
        drawn = random.Random(4)
        keys = mib * 1024 // 4
        for first in range(0, keys, 4096):
            with env.begin(write=True) as change:
                for key in range(first, min(first + 4096, keys)):
                    change.put(key.to_bytes(8, "big"), drawn.randbytes(4000))


def read(env, keys):
    with env.begin() as look, look.cursor() as cursor:
        every = hashlib.sha256()
        for key, value in cursor:
            every.update(key)
            every.update(value)
        drawn = random.Random(5)
        some = hashlib.sha256()
        for _ in range(keys):
            key = drawn.randrange(look.stat()["entries"]).to_bytes(8, "big")
            some.update(look.get(key))
        print(every.hexdigest(), some.hexdigest())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", path, mib]:
            make(path, int(mib))
        case ["read", path, keys]:
            with lmdb.open(path, readonly=True, lock=False) as env:
                read(env, int(keys))
        case ["beside-a-writer", path, keys]:
            with lmdb.open(path, map_size=4 << 30) as env:
                with env.begin(write=True) as change:
                    change.put(b"more", b"of it")
                read(env, int(keys))
