"""An SQLite database: made, or checked and asked through a mapping."""

import os
import random
import sqlite3
import sys


def make(path, mib):
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, number INTEGER, bytes BLOB)")
    drawn = random.Random(1)
    rows = mib * 1024 // 2
    base.executemany(
        "INSERT INTO rows VALUES (?, ?, ?)",
        ((id, drawn.randrange(rows), drawn.randbytes(1900)) for id in range(rows)),
    )
    base.execute("CREATE INDEX numbers ON rows (number)")
    base.commit()
    base.close()


def ask(path, queries):
    base = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    base.execute(f"PRAGMA mmap_size={os.path.getsize(path)}")
    print(base.execute("PRAGMA integrity_check").fetchone()[0])
    (rows,) = base.execute("SELECT count(*) FROM rows").fetchone()
    drawn = random.Random(2)
    total = 0
    for _ in range(queries):
        found = base.execute(
            "SELECT sum(length(bytes)), max(hex(substr(bytes, 1, 8))) FROM rows WHERE number = ?",
            (drawn.randrange(rows),),
        ).fetchone()
        total += found[0] or 0
        total ^= int(found[1] or "0", 16)
    print(total)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", path, mib]:
            make(path, int(mib))
        case ["ask", path, queries]:
            ask(path, int(queries))
