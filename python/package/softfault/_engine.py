"""Engines: budgets, and the choice of a map's engine."""

from __future__ import annotations

import contextvars
import os
import threading
import warnings

from ._native_or_fallback import IS_NATIVE, native

_warned = False


def _size(size):
    """A number of bytes, of a number or a text such as "1G"."""
    if size is None or isinstance(size, int):
        return size
    if isinstance(size, str):
        return native.parse_size(size)
    raise TypeError(f"a size is a number of bytes or a text such as '1G', and not {type(size).__name__}")


def _swap(swap):
    """A directory and a size, of a path, a pair, or a text such as "/var/tmp:8G"."""
    if swap is None:
        return None, None
    if isinstance(swap, tuple):
        directory, size = swap
        return os.fspath(directory), _size(size)
    if isinstance(swap, str):
        directory, colon, size = swap.rpartition(":")
        return (directory, _size(size)) if colon else (swap, None)
    return os.fspath(swap), None


class Engine:
    """Maps under one memory budget.

    ``memory`` is the budget: the bytes that the engine's maps may have in memory, page tables included. Default: a quarter
    of the machine's memory, or of its memory cgroup's limit. ``swap`` is a directory, optionally followed by a colon and a
    size, for memory that does not fit the budget (:meth:`empty`). The other arguments are those of the Rust library's
    ``Builder``.

    Maps that are made in a ``with`` block, and name no other engine, belong to the engine of the block:

    >>> import softfault
    >>> with softfault.Engine(memory="64M") as engine:
    ...     softfault.current_engine() is engine
    True
    >>> engine.stats()["budget_bytes"] in (0, 64 << 20)
    True

    The maps live on after the block. A child of fork has an engine of its own, with the same budget.
    """

    def __init__(
        self,
        memory=None,
        swap=None,
        *,
        max_memory=None,
        compression=None,
        reads=None,
        coherence=None,
        faults=None,
        allow_kernel_maps=None,
        small_maps=None,
        fallback="kernel",
    ):
        directory, size = _swap(swap)
        self._native = native.Engine(
            memory=_size(memory),
            max_memory=_size(max_memory),
            swap=directory,
            swap_bytes=size,
            compression=compression,
            reads=reads,
            coherence=coherence,
            faults=faults,
            allow_kernel_maps=allow_kernel_maps,
            small_maps=_size(small_maps),
            fallback=fallback,
        )
        self._warn_once()

    def _warn_once(self):
        global _warned
        if IS_NATIVE and not _warned and self._native.stats()["kernel_fallback"]:
            _warned = True
            warnings.warn(
                "this process may not use userfaultfd: the kernel's mmap serves softfault's maps, without a budget "
                "(`softfault doctor` shows how to allow it)",
                RuntimeWarning,
                stacklevel=4,
            )

    def __enter__(self):
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *_exception):
        # Other threads and tasks may be in a block of this engine: each has the blocks of its own context.
        entered = _entered.get()
        for at in reversed(range(len(entered))):
            if entered[at] is self:
                _entered.set(entered[:at] + entered[at + 1 :])
                return
        raise RuntimeError("the engine's with block was entered in another context")

    def set_memory(self, size):
        """Changes the budget, and evicts down to it."""
        self._native.set_memory(_size(size))

    def stats(self) -> dict:
        """The engine's counters in this process, as numbers by name.

        >>> import softfault
        >>> sorted(softfault.Engine(memory="64M").stats())[:2]  # doctest: +SKIP
        ['anonymous_faults', 'bytes_read']
        """
        return self._native.stats()

    def close_idle(self):
        """Closes the files that have no map any more, and drops their pages."""
        self._native.close_idle()

    def mmap(self, *arguments, **named):
        """:class:`softfault.mmap` under this engine."""
        return native.mmap(*arguments, engine=self, **named)

    def memmap(self, *arguments, **named):
        """:class:`softfault.memmap` under this engine."""
        from ._arrays import memmap

        return memmap(*arguments, engine=self, **named)

    def open_memmap(self, *arguments, **named):
        """:func:`softfault.open_memmap` under this engine."""
        from ._arrays import open_memmap

        return open_memmap(*arguments, engine=self, **named)

    def empty(self, shape, dtype=float, order="C"):
        """:func:`softfault.empty` under this engine."""
        from ._arrays import empty

        return empty(shape, dtype, order, engine=self)

    def __repr__(self):
        stats = self.stats()
        return f"<softfault.Engine memory={stats['budget_bytes']} resident={stats.get('resident_bytes', 0)}>"


#: The engines whose ``with`` blocks the context is in, the innermost last.
_entered: contextvars.ContextVar = contextvars.ContextVar("softfault.engines", default=())
_default: Engine | None = None
_default_memory = None
#: A signal's handler, a finalizer or a warning's may ask for the engine in the thread that makes it: so it may be locked again.
_making = threading.RLock()


def _in_child():
    """Threads of the parent, which the child does not have, may have made the engine, or have been in a map's call."""
    global _making
    _making = threading.RLock()
    native.give_back_for_others()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _variable(name, parse):
    text = os.environ.get(name)
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{name}={text}: {error}") from None


def current_engine() -> Engine:
    """The engine for maps that name none: that of the innermost ``with`` block, or the process's default engine.

    The first use makes the default engine, with the budget of :func:`set_memory` or ``SOFTFAULT_MEMORY``, and the swap of
    ``SOFTFAULT_SWAP``.
    """
    global _default
    entered = _entered.get()
    if entered:
        return entered[-1]
    if _default is None:
        with _making:
            if _default is None:
                asked = _default_memory
                memory = _variable("SOFTFAULT_MEMORY", _size) if asked is None else asked
                _variable("SOFTFAULT_SWAP", _swap)
                made = Engine(memory=memory, swap=os.environ.get("SOFTFAULT_SWAP"))
                # Code that ran in between may have set the budget, or have made an engine.
                while asked != _default_memory:
                    asked = _default_memory
                    made.set_memory(asked)
                if _default is None:
                    _default = made
    return _default


def set_memory(size):
    """Sets the budget of the process's default engine: a number of bytes, or a text such as "1G"."""
    global _default_memory
    size = _size(size)
    # An engine that another thread is making has been given its budget.
    with _making:
        if _default is not None:
            _default.set_memory(size)
        _default_memory = size


def stats() -> dict:
    """The counters of the current engine, as numbers by name."""
    return current_engine().stats()


native.set_current(current_engine)
