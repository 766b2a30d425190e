"""The log file of a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernelrl_core.errors import KernelRLError
from kernelrl_core.monitoring.console import Console

__all__ = ["log_to"]


@contextmanager
def log_to(path: Path, console: Console, *, silent: str = "") -> Iterator[None]:
    """Write log records of level INFO to the file; print warnings to the user, too.

    Args:
        silent: logger whose warnings are not printed, because the command itself prints the errors that end the run.

    Raises:
        KernelRLError: the file cannot be opened.
    """
    try:
        to_file: logging.Handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise KernelRLError(f"{path}: {error.strerror}") from error
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    to_file.handleError = lambda record: None  # type: ignore[method-assign]  # a full disk is reported by the journals
    to_user = _ToUser(console, silent)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    for handler in (to_file, to_user):
        root.addHandler(handler)
    try:
        yield
    finally:
        for handler in (to_file, to_user):
            root.removeHandler(handler)
            # A full disk is reported by the journals.
            with suppress(OSError):
                handler.close()
        root.setLevel(level)


class _ToUser(logging.Handler):
    def __init__(self, console: Console, silent: str) -> None:
        super().__init__(logging.WARNING)
        self._console, self._silent = console, silent

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != self._silent:
            self._console.warn(f"{record.levelname.lower()}: {record.getMessage()}")
