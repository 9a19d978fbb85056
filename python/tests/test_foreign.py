"""CPython's own tests of mmap, and numpy's of memmap, over softfault's."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import numpy
import pytest
from excepted import OF_CPYTHON, OF_NUMPY, OF_OLD_NUMPY

HERE = pathlib.Path(__file__).parent / "foreign"


def outcomes(script, served_by, *arguments):
    done = subprocess.run(
        [sys.executable, HERE / script, served_by, *arguments], capture_output=True, text=True, timeout=300, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    failed = {name for name, outcome in said["outcomes"].items() if outcome == "failed"}
    passed = {name for name, outcome in said["outcomes"].items() if outcome == "passed"}
    print(f"{script} {served_by}: {len(passed)} passed, {len(failed)} failed, of {len(said['outcomes'])}")
    return passed, failed, said, done.stderr


def judge(failed, excepted, errors):
    assert failed <= set(excepted), f"not excepted: {sorted(failed - set(excepted))}\n{errors}"
    assert set(excepted) <= failed, f"excepted, and did not fail: {sorted(set(excepted) - failed)}"


@pytest.mark.parametrize("served_by", ["default", "engine"])
def test_cpythons(served_by):
    if importlib.util.find_spec("test.test_mmap") is None:
        pytest.skip("this Python has no test package: CPython's tests of mmap are not run")
    passed, failed, said, errors = outcomes("run_cpythons.py", served_by)
    judge(failed, OF_CPYTHON, errors)
    assert len(passed) >= 30, "most of them ran"
    if served_by == "engine":
        assert said["stats"]["major_faults"] > 0, "the engine has served them"


#: The package that has numpy's tests, which 2.0 has renamed, and those that do not pass.
CORE, EXCEPTED = ("numpy._core", OF_NUMPY) if not numpy.__version__.startswith("1.") else ("numpy.core", OF_OLD_NUMPY)


@pytest.mark.parametrize("served_by", ["default", "engine"])
def test_numpys(served_by):
    if importlib.util.find_spec(f"{CORE}.tests.test_memmap") is None:
        pytest.skip("this numpy has no tests: those of memmap are not run")
    passed, failed, _, errors = outcomes("run_numpys.py", served_by, CORE)
    judge(failed, EXCEPTED, errors)
    assert len(passed) >= 15, "most of them ran"
