"""Runs numpy's own tests of memmap over softfault's, and prints a line of JSON: the result of each.

The tests are those of the numpy that is installed. The first argument is as in ``run_cpythons.py``, the second is the
package that has them.
"""

import contextlib
import json
import sys

import pytest
import softfault


class Outcomes:
    def __init__(self):
        self.outcomes = {}

    def pytest_collection_modifyitems(self, items):
        for item in items:
            item.module.memmap = softfault.memmap

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.partition("::")[2]
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[name] = report.outcome


def main():
    engine = contextlib.nullcontext()
    if sys.argv[1] == "engine":
        engine = softfault.Engine(memory="32M", allow_kernel_maps=False, small_maps=0, coherence="engine")
    outcomes = Outcomes()
    with engine, contextlib.redirect_stdout(sys.stderr):
        pytest.main(["-q", "-p", "no:cacheprovider", "--noconftest", "--pyargs", f"{sys.argv[2]}.tests.test_memmap"], plugins=[outcomes])
    print(json.dumps({"outcomes": outcomes.outcomes}))


main()
