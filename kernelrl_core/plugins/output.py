"""Output of plugin code, and lines about it on standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

__all__ = ["SlowImports", "output_to", "output_to_stderr", "say"]

_LOOK_EVERY_S = 0.5
_SLOW_S = 3.0
_SLOW_IMPLEMENTATION_S = 20.0
"""An implementation may import a large library."""


def say(text: str) -> None:
    """Print a line on standard error."""
    print(f"kernelrl: {text}", file=sys.stderr)


class SlowImports:
    """Context of imports of plugins, one after the other. A line on standard error names one that takes long, while it
    does."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._current: tuple[float, str] | None = None
        # Daemon: must not keep the process alive where an import ends it.
        self._thread = threading.Thread(target=self._look, name="kernelrl-imports", daemon=True)

    def __enter__(self) -> SlowImports:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def of_plugin(self, name: str) -> Iterator[None]:
        """Context of the import of one plugin."""
        fix = f"move slow imports into its implementation, or set KERNELRL_DISABLE_PLUGINS={name}"
        with self._watch(f"plugin {name}", _SLOW_S, fix):
            yield

    @contextmanager
    def of_implementation(self, what: str) -> Iterator[None]:
        """Context of the import of an implementation, such as `reward 'speedup' of plugin rewards`."""
        with self._watch(what, _SLOW_IMPLEMENTATION_S, "in the plugin, import slow libraries where they are used"):
            yield

    @contextmanager
    def _watch(self, what: str, limit_s: float, fix: str) -> Iterator[None]:
        line = f"the import of {what} has taken {limit_s:g} s so far; fix: {fix}"
        self._current = time.monotonic() + limit_s, line
        try:
            yield
        finally:
            self._current = None

    def _look(self) -> None:
        said = ""
        while not self._ended.wait(_LOOK_EVERY_S):
            current = self._current
            if current is not None and current[1] != said and time.monotonic() >= current[0]:
                said = current[1]
                say(said)


_redirected: ContextVar[TextIO | None] = ContextVar("_redirected", default=None)
"""Where the current task or thread prints to; None: standard output."""


@contextmanager
def output_to(stream: TextIO) -> Iterator[None]:
    """Context in which this task or thread prints to `stream`. Standard output is for the result of a command."""
    if not isinstance(sys.stdout, _DividedOutput):
        sys.stdout = _DividedOutput(sys.stdout)
    token = _redirected.set(stream)
    try:
        yield
    finally:
        _redirected.reset(token)


def output_to_stderr() -> AbstractContextManager[None]:
    """Context in which this task or thread prints to standard error."""
    return output_to(sys.stderr)


class _DividedOutput:
    """Standard output, or what `output_to` names in this task or thread.

    `contextlib.redirect_stdout` replaces it for the whole process, also for other tasks and threads.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        redirected = _redirected.get()
        return getattr(self._stream if redirected is None else redirected, name)
