"""The plugin boundary: turns exceptions of plugin code into messages that name component, action and place, and sends
what it prints to standard error."""

from __future__ import annotations

import asyncio
import logging
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import kernelrl_core
from kernelrl_core.errors import InfrastructureError, KernelRLError, PluginError
from kernelrl_core.plugins.load_errors import error_text
from kernelrl_core.plugins.output import output_to_stderr
from kernelrl_core.plugins.registry import registry

__all__ = [
    "first_error",
    "place_of",
    "plugin_boundary",
    "plugin_test",
    "returned",
    "returned_plain",
    "wrong_return",
]

T = TypeVar("T")

_log = logging.getLogger(__name__)
_CORE = Path(kernelrl_core.__file__).parent
_LABEL = re.compile(r"(\w+)[\w ]* '([^']+)'")


@contextmanager
def plugin_boundary(component: str, action: str, *, broken: type[InfrastructureError] = PluginError) -> Iterator[None]:
    """Context in which code of a component is called, such as `policy 'torch'` with the action `sample`.

    Args:
        broken: class for infrastructure errors that no inner boundary has classified.

    Raises:
        InfrastructureError: an instance of `broken`, or of the class that an inner boundary chose.
        KernelRLError: errors of this family pass unchanged. Any other exception, and SystemExit, becomes a
            `KernelRLError` that names component, action, file and line; the traceback is logged.
    """
    try:
        with output_to_stderr():
            yield
    except InfrastructureError as error:
        raise broken.at_boundary(error) from error.__cause__
    except KernelRLError:
        raise
    except asyncio.CancelledError as error:
        if _is_asked_to_end():
            raise
        raise KernelRLError(f"{component} was cancelled in {action}") from error
    # SystemExit: a component that calls `sys.exit` must not end the command without a message.
    except (Exception, SystemExit) as error:
        _log.info("%s failed in %s", component, action, exc_info=True)
        message = f"{component} failed in {action}: {error_text(error)}{place_of(error)}"
        raise KernelRLError(message, fix=plugin_test(component), see="plugin") from error


def returned(value: object, wanted: type[T], component: str, action: str) -> T:
    """The return value of a component's code.

    Raises:
        KernelRLError: it is not of the type that the interface states.
    """
    if isinstance(value, wanted):
        return value
    raise wrong_return(value, wanted.__name__, component, action)


def returned_plain(value: object, component: str, action: str) -> dict[str, Any]:
    """A mapping of plain data that a component's code returned, such as its identity.

    Raises:
        KernelRLError: it is not a mapping, or has a value that JSON cannot hold.
    """
    found = dict(returned(value, Mapping, component, action))  # type: ignore[type-abstract]
    for key, item in found.items():
        if not isinstance(key, str) or not _is_plain(item):
            kind = type(item).__name__
            raise wrong_return(value, f"plain data (its value {key!r} is a {kind})", component, action)
    return found


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def wrong_return(value: object, wanted: str, component: str, action: str) -> KernelRLError:
    """The error for a return value of a component's code that is not `wanted`."""
    shown = "None" if value is None else type(value).__name__
    return KernelRLError(
        f"{component} returned {shown} from {action}, not {wanted}",
        fix=f"in the plugin, return {wanted}; {plugin_test(component)}",
        see="plugin",
    )


def place_of(error: BaseException) -> str:
    """Text ` (FILE:LINE)`: the innermost line of the package that the core called; empty if the core itself failed."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if not _is_core(frame)]
    if not frames:
        return ""
    package = _package(frames[0][0])
    frame, line = next((frame, line) for frame, line in reversed(frames) if _package(frame) == package)
    return f" ({frame.f_code.co_filename}:{line})"


def _is_core(frame: Any) -> bool:
    return Path(frame.f_code.co_filename).is_relative_to(_CORE) or _package(frame) == "contextlib"


def _package(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def plugin_test(component: str) -> str:
    """The command that tests the plugin of a component, such as `policy 'torch'`."""
    label = _LABEL.search(component)
    word, name = (label[1], label[2]) if label else ("", component)
    owner, _, bare = name.rpartition(":")
    for plugin in registry().plugins:
        for kind, components in plugin.components.items():
            found = any(one.name == bare for one in components) and kind.startswith(word.rstrip("y"))
            if found and owner in ("", plugin.name):
                return f"kernelrl plugins check {plugin.name} tests it"
    return "kernelrl plugins check tests the plugin, which 'kernelrl plugins list' names"


def _is_asked_to_end() -> bool:
    """True if the caller's task is being cancelled. Otherwise the component cancelled itself: a failure, which a task
    group would ignore."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop in this thread
        return False
    return task is not None and task.cancelling() > 0


def first_error(error: BaseException) -> BaseException:
    """The first leaf of nested exception groups: the error for which a task group was cancelled."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
