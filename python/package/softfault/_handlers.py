"""Handlers of SIGBUS that a program installs after the first map.

Faults are served by a handler of SIGBUS. One that is installed later would get them: Python's own only notes that a signal
came, and so the touch would fault for ever; faulthandler's would report a bus error. So the functions that install one put
softfault's in front of it again, which passes on what is not softfault's.
"""

from __future__ import annotations

import faulthandler
import functools
import signal

from ._native_or_fallback import native


def _in_front_after(module, name):
    function = getattr(module, name)

    @functools.wraps(function)
    def wrapped(*arguments, **named):
        try:
            return function(*arguments, **named)
        finally:
            native.get_in_front()

    setattr(module, name, wrapped)


def _install():
    for module, name in ((faulthandler, "enable"), (faulthandler, "disable"), (signal, "signal")):
        _in_front_after(module, name)
