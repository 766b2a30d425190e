"""Errors, by the action that the user must take.

    KernelRLError            exit 1   the run or the check failed
    ├── UsageError           exit 2   bad arguments, an invalid recipe, an unusable file
    │   └── LookupFailed     exit 2   a name that is unknown, or provided by several plugins
    ├── MissingPrerequisite  exit 3   a plugin, GPU, key or program is missing
    └── InfrastructureError  exit 1   a machine or service failed; says nothing about a kernel
        ├── SamplingError             a policy could not sample a reply
        ├── EvaluationError           an evaluator could not carry out an evaluation
        ├── PluginError               the service of another component failed, or an evaluator raised another exception
        └── StorageError              the run's files cannot be read or written; ends the run

A bad kernel is data (see `Outcome`) and never an exception. Only the command line's `main`, the plugin loader and the
plugin boundary catch all exceptions. Every message has the problem, its place, and the command that fixes it. Each
error names its entry of `docs/troubleshooting.md` (`see`).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import ClassVar

__all__ = [
    "EvaluationError",
    "ExitCode",
    "InfrastructureError",
    "KernelRLError",
    "LookupFailed",
    "MissingPrerequisite",
    "PluginError",
    "SamplingError",
    "StorageError",
    "UsageError",
    "more",
    "nearest",
    "nearest_path",
    "suggestion",
]


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    MISSING = 3
    INTERRUPTED = 130


class KernelRLError(Exception):
    """A failure that the user sees as a message without a traceback.

    Args:
        message: the problem and its place, in one or more lines.
        fix: the command or change that fixes it, if there is one.
        see: id of an entry of `docs/troubleshooting.md`; empty: that of the class. `kernelrl explain ID` prints it.
    """

    exit_code = ExitCode.FAILED
    see = "run-failed"
    """Id of the entry of `docs/troubleshooting.md`."""

    def __init__(self, message: str, *, fix: str = "", see: str = "") -> None:
        super().__init__(message, fix)
        self.message = message
        self.fix = fix
        if see:
            self.see = see

    def __str__(self) -> str:
        return f"{self.message}\nfix: {self.fix}" if self.fix else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.fix, self.see)


class UsageError(KernelRLError):
    """Arguments, recipe or a file of the user cannot be used."""

    exit_code = ExitCode.USAGE
    see = "arguments"


class LookupFailed(UsageError):
    """A name is unknown or ambiguous; the message has the name to write instead."""

    see = "unknown-name"


class MissingPrerequisite(KernelRLError):
    """A prerequisite is missing: a plugin, module, program, GPU or key."""

    exit_code = ExitCode.MISSING
    see = "missing-prerequisite"


class InfrastructureError(KernelRLError):
    """A failed worker, service, network or disk. Never scored, never cached, never shown to the model. The core retries
    an evaluation, then masks the turn.

    Plugins raise this class. The core converts it to the subclass of the boundary that the error crosses.
    """

    see = "infrastructure"
    boundary: ClassVar[str] = ""
    """Boundary that the error crossed; the metric `infra/*` of this name counts the samples lost there."""

    @classmethod
    def at_boundary(cls, error: InfrastructureError) -> InfrastructureError:
        """The error converted to this class; the error itself if an inner boundary has already classified it."""
        return error if error.boundary else cls(error.message, fix=error.fix, see=error.see)


class SamplingError(InfrastructureError):
    """A policy could not sample a reply."""

    boundary = "sampling"


class EvaluationError(InfrastructureError):
    """An evaluator could not carry out an evaluation."""

    boundary = "evaluation"


class PluginError(InfrastructureError):
    """The service of a component failed, or an evaluator raised another exception than it may."""

    boundary = "plugin"


class StorageError(InfrastructureError):
    """A file cannot be read or written. The run ends without losing a sample and can be resumed."""

    boundary = "storage"
    see = "storage"


def _rebuild(cls: type[KernelRLError], message: str, fix: str, see: str) -> KernelRLError:
    return cls(message, fix=fix, see=see)


def more(see: str) -> str:
    """The line below a fix: the command that prints an entry of `docs/troubleshooting.md`."""
    return f"more: kernelrl explain {see}"


_MAX_NAMES = 30


def nearest(word: str, known: Iterable[str]) -> str:
    """The name in `known` that is most similar to `word`; empty if none is similar."""
    close = difflib.get_close_matches(word, sorted(known), n=1)
    return close[0] if close else ""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Hint for a message: the nearest name, or the first known names if none is similar."""
    names = sorted(known)
    close = nearest(word, names)
    if close:
        return f"did you mean {close!r}?"
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"known: {', '.join(names[:_MAX_NAMES]) or 'none'}{more}"


def nearest_path(path: str | os.PathLike[str]) -> str:
    """End of a message about a missing path: `; did you mean 'PATH'?`, or nothing if no existing path is similar.

    Names are compared without suffix, in the deepest directory of the path that exists.
    """
    wanted = Path(path).expanduser()
    for depth, directory in enumerate(wanted.parents):
        if directory.is_dir():
            name, *rest = wanted.parts[-1 - depth :]
            close = _nearest_entry(name, directory)
            if not close:
                return ""
            whole = directory.joinpath(close, *rest)
            return f"; did you mean {str(whole if whole.exists() else directory / close)!r}?"
    return ""


def _nearest_entry(name: str, directory: Path) -> str:
    try:
        entries = [entry for entry in os.listdir(directory) if entry != name]
    except OSError:
        return ""
    close = nearest(Path(name).stem, {Path(entry).stem for entry in entries})
    same = [entry for entry in entries if close and Path(entry).stem == close]
    return nearest(name, same) or min(same, default="")
