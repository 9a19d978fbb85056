"""A file of four budgets, and an engine that serves all of it."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import softfault

BUDGET = 10 << 20
#: Rows of 4 KiB.
ROWS = 4 * BUDGET // 4096


def numbers(count):
    """The contents of the file: no two words are the same, and none is zero."""
    return (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


@pytest.fixture(scope="session")
def data():
    return numbers(ROWS * 512)


@pytest.fixture(scope="session")
def path(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("softfault") / "big"
    data.tofile(path)
    return path


def served(**options):
    """An engine to which nothing of a file is left by the kernel, so that its pages are cold."""
    return softfault.Engine(memory=BUDGET, allow_kernel_maps=False, small_maps=0, reads="direct", **options)


@pytest.fixture
def engine():
    with served() as engine:
        yield engine


def run(code, *arguments, options=(), **environment):
    """Runs a program; returns its output."""
    import os

    done = subprocess.run(
        [sys.executable, *options, "-c", code, *map(str, arguments)],
        env={**os.environ, **environment},
        cwd=pathlib.Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
