"""The plugin boundary: turns exceptions of plugin code into messages that name component and action."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from kernelrl_core.errors import InfrastructureError, KernelRLError, PluginError

__all__ = ["first_error", "plugin_boundary", "returned", "wrong_return"]

T = TypeVar("T")

_log = logging.getLogger(__name__)


@contextmanager
def plugin_boundary(component: str, action: str, *, broken: type[InfrastructureError] = PluginError) -> Iterator[None]:
    """Context in which code of a component is called, such as `policy 'torch'` with the action `sample`.

    Args:
        broken: class for infrastructure errors that no inner boundary has classified.

    Raises:
        InfrastructureError: an instance of `broken`, or of the class that an inner boundary chose.
        KernelRLError: errors of this family pass unchanged. Any other exception becomes a `KernelRLError` that names
            component and action; the traceback is logged.
    """
    try:
        yield
    except InfrastructureError as error:
        raise broken.at_boundary(error) from error.__cause__
    except KernelRLError:
        raise
    except asyncio.CancelledError as error:
        if _is_asked_to_end():
            raise
        raise KernelRLError(f"{component} was cancelled in {action}") from error
    except Exception as error:
        _log.info("%s failed in %s", component, action, exc_info=True)
        message = f"{component} failed in {action}: {type(error).__name__}: {error}"
        raise KernelRLError(message, fix="kernelrl plugins check PLUGIN tests it", see="plugin") from error


def returned(value: object, wanted: type[T], component: str, action: str) -> T:
    """The return value of a component's code.

    Raises:
        KernelRLError: it is not of the type that the interface states.
    """
    if isinstance(value, wanted):
        return value
    raise wrong_return(value, wanted.__name__, component, action)


def wrong_return(value: object, wanted: str, component: str, action: str) -> KernelRLError:
    """The error for a return value of a component's code that is not `wanted`."""
    shown = "None" if value is None else type(value).__name__
    return KernelRLError(
        f"{component} returned {shown} from {action}, not {wanted}",
        fix=f"in the plugin, return {wanted}; kernelrl plugins check PLUGIN tests it",
        see="plugin",
    )


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
