"""SIGBUS handlers that a program installs after the first map.

A SIGBUS handler serves softfault's faults. A handler that is installed later would get them instead: Python's own only
records the signal, so that the touch would fault for ever; faulthandler's would report a bus error. So the functions that
install a handler install softfault's in front of it again. It passes on signals that are not softfault's. After some sixteen
different handlers that is no longer possible, and a warning says so.

A thread that blocks SIGBUS and touches a page that is not there would end the process, since the kernel cannot deliver the signal.
So ``signal.pthread_sigmask``, which is called with all signals as a rule, does not block SIGBUS.
"""

from __future__ import annotations

import functools
import signal
import warnings

from ._native_or_fallback import native


def _reinstall_after(module, name):
    function = getattr(module, name)

    @functools.wraps(function)
    def wrapped(*arguments, **named):
        try:
            return function(*arguments, **named)
        finally:
            if not native.reinstall_handler():
                warnings.warn(
                    "too many different SIGBUS handlers were installed: the last one stays in front of softfault's, whose "
                    "maps must not be touched where a page may be missing",
                    RuntimeWarning,
                    stacklevel=2,
                )

    setattr(module, name, wrapped)


def _without_sigbus(function):
    @functools.wraps(function)
    def wrapped(how, mask):
        if how != signal.SIG_UNBLOCK:
            mask = [number for number in mask if number != signal.SIGBUS]
        return function(how, mask)

    return wrapped


def _install():
    # Not at the top: Python 3.13 refuses it in a sub-interpreter, and the native part says first that it does not support those.
    import faulthandler

    signal.pthread_sigmask = _without_sigbus(signal.pthread_sigmask)
    for module, name in ((faulthandler, "enable"), (faulthandler, "disable"), (signal, "signal")):
        _reinstall_after(module, name)
