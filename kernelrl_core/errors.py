"""What can go wrong, by what the user has to do about it.

    KernelRLError            exit 1   the run or the check failed
    ├── UsageError           exit 2   bad arguments, an invalid recipe, an unusable file
    │   └── LookupFailed     exit 2   a name that is unknown or offered twice
    ├── MissingPrerequisite  exit 3   a plugin, GPU, key or program is not there
    └── InfrastructureError  exit 1   a machine broke; never a verdict on a kernel
        ├── SamplingError             a policy could not sample a reply
        ├── EvaluationError           an evaluator could not carry out an evaluation
        ├── PluginError               the service behind another component, or an evaluator in an undeclared way
        └── StorageError              the run's files cannot be read or written; ends the run

A bad kernel is data (see `Outcome`) and never an exception. Only the command line's `main`, the plugin loader and the
wrappers of single stages catch broadly; every message says what, where, and the command that fixes it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum
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
    "nearest",
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
    """A failure that the user is told about in a message, without a traceback.

    Args:
        message: what is wrong and where, in one or more lines.
        fix: the command or change that fixes it, if there is one.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message, fix)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\nfix: {self.fix}" if self.fix else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.fix)


class UsageError(KernelRLError):
    """The arguments, the recipe or a file given by the user cannot be used."""

    exit_code = ExitCode.USAGE


class LookupFailed(UsageError):
    """A name is unknown, or ambiguous; the message says what to write instead."""


class MissingPrerequisite(KernelRLError):
    """Something outside the recipe is missing: a plugin, a module, a program, a GPU, a key."""

    exit_code = ExitCode.MISSING


class InfrastructureError(KernelRLError):
    """A broken worker, network or disk. The core tries again; the error is never a reward, never cached and never shown
    to the model.

    Plugins raise this class. The core turns it into the subclass of the boundary that the error crossed.
    """

    boundary: ClassVar[str] = ""
    """Where it left the infrastructure; the metric `infra/*` of this name counts the samples lost there."""

    @classmethod
    def at_boundary(cls, error: InfrastructureError) -> InfrastructureError:
        """The error as one of this class, or itself where a boundary inside has already classified it."""
        return error if error.boundary else cls(error.message, fix=error.fix)


class SamplingError(InfrastructureError):
    """A policy could not sample a reply."""

    boundary = "sampling"


class EvaluationError(InfrastructureError):
    """An evaluator could not carry out an evaluation."""

    boundary = "evaluation"


class PluginError(InfrastructureError):
    """The service behind a component broke, or an evaluator failed in a way that it does not declare."""

    boundary = "plugin"


class StorageError(InfrastructureError):
    """A file cannot be read or written. Loses no sample: the run ends, and continues from what is on the disk."""

    boundary = "storage"


def _rebuild(cls: type[KernelRLError], message: str, fix: str) -> KernelRLError:
    return cls(message, fix=fix)


def nearest(word: str, known: Iterable[str]) -> str:
    """The name in `known` that `word` is most likely meant to be, or empty text."""
    close = difflib.get_close_matches(word, sorted(known), n=1)
    return close[0] if close else ""


def suggestion(word: str, known: Iterable[str]) -> str:
    """A hint for a message: the nearest name, or all names where none is near."""
    names = sorted(known)
    close = nearest(word, names)
    return f"did you mean {close!r}?" if close else f"known: {', '.join(names) or 'none'}"
