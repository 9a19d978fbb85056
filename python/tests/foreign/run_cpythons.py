"""Runs CPython's own tests of mmap over softfault's, and prints a line of JSON: the result of each.

The tests are those of the interpreter that is installed. The argument names the server of the maps: "default", or "engine" for
everything that an engine can serve: memory of no file is private then, since memory that children share is the kernel's.
"""

import contextlib
import json
import os
import sys
import tempfile
import types
import unittest

import softfault


class Outcomes(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.outcomes = {}

    def _note(self, test, outcome):
        name = test.id().partition("test_mmap.")[2]
        # A test of parts fails with the first that does.
        if self.outcomes.get(name) != "failed":
            self.outcomes[name] = outcome

    def addSuccess(self, test):
        self._note(test, "passed")

    def addSkip(self, test, reason):
        self._note(test, "skipped")

    def _failed(self, test, error):
        self._note(test, "failed")
        print(self._exc_info_to_string(error, test), file=sys.stderr)

    addError = addFailure = _failed

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self._failed(test, error)


class Private(softfault.mmap):
    def __new__(cls, fileno, length, *arguments, **named):
        if fileno == -1 and not arguments and "flags" not in named and "access" not in named:
            named["flags"] = softfault.MAP_PRIVATE
        return super().__new__(cls, fileno, length, *arguments, **named)


def main():
    from test import test_mmap

    engine = contextlib.nullcontext()
    test_mmap.mmap = softfault
    if sys.argv[1] == "engine":
        test_mmap.mmap = types.SimpleNamespace(**vars(softfault))
        test_mmap.mmap.mmap = Private
        engine = softfault.Engine(memory="32M", allow_kernel_maps=False, small_maps=0, coherence="engine")
    result = Outcomes()
    with tempfile.TemporaryDirectory() as directory, engine:
        os.chdir(directory)
        unittest.defaultTestLoader.loadTestsFromModule(test_mmap).run(result)
        os.chdir("/")
    stats = softfault.stats() if sys.argv[1] == "default" else engine.stats()
    print(json.dumps({"outcomes": result.outcomes, "stats": stats}))


main()
