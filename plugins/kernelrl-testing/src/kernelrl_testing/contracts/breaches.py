"""Breaches of a contract by a component, each with the change that corrects it."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import SkipTest

import attrs

import kernelrl_core
from kernelrl_core.errors import KernelRLError, MissingPrerequisite

__all__ = ["Breach", "Fault", "calling", "located", "require", "require_none", "skipped_where_missing"]

_CORE, _KIT = str(Path(kernelrl_core.__file__).parent), str(Path(__file__).parents[1])
_LIBRARY, _INSTALLED = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")
_MAX_TEXT = 300


@attrs.frozen
class Fault:
    """One requirement that a component does not fulfil."""

    message: str
    fix: str

    def __str__(self) -> str:
        return f"{' '.join(self.message.split())}; fix: {self.fix}"


class Breach(AssertionError):
    """A test of a contract fails; one line per fault."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


def require(fulfilled: object, message: str, fix: str) -> None:
    """Raise a `Breach` unless `fulfilled`."""
    if not fulfilled:
        raise Breach(Fault(message, fix))


def require_none(faults: Iterable[Fault]) -> None:
    """Raise a `Breach` with all faults, if there are any."""
    if found := tuple(faults):
        raise Breach(*found)


@contextmanager
def calling(what: str, fix: str) -> Iterator[None]:
    """Context in which code of the component is called: an exception is a breach, a missing prerequisite a skipped
    test."""
    try:
        yield
    except (Breach, SkipTest):
        raise
    except MissingPrerequisite as error:
        raise _skipped(error) from error
    except Exception as error:
        raise Breach(Fault(f"{what} raises {located(error)}", fix)) from error


@contextmanager
def skipped_where_missing() -> Iterator[None]:
    """Skip the test where a prerequisite is missing; another error of `kernelrl` is a breach with its own fix."""
    try:
        yield
    except MissingPrerequisite as error:
        raise _skipped(error) from error
    except KernelRLError as error:
        raise Breach(Fault(error.message, error.fix or "correct it in the plugin")) from error


def located(error: BaseException) -> str:
    """Class, message and position of an exception: the innermost line in the folder of the component's code."""
    text = " ".join(f"{type(error).__name__}: {error}".removesuffix(": ").split())
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}…"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _may_be_of_a_plugin(frame.filename)]
    if not frames:
        return text
    folder = Path(frames[0].filename).parent
    innermost = next(frame for frame in reversed(frames) if Path(frame.filename).parent == folder)
    return f"{text} ({folder.name}/{Path(innermost.filename).name}:{innermost.lineno})"


def _may_be_of_a_plugin(filename: str) -> bool:
    in_library = filename.startswith(_LIBRARY) and not filename.startswith(_INSTALLED)
    return not (in_library or filename.startswith((_CORE, _KIT, "<")))


def _skipped(error: MissingPrerequisite) -> SkipTest:
    return SkipTest(f"{error.message}; fix: {error.fix}" if error.fix else error.message)
