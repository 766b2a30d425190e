"""Whose code failed: the one place where an exception of a plugin becomes a message that names plugin and stage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from kernelrl_core.errors import InfrastructureError, KernelRLError, PluginError

__all__ = ["first_error", "plugin_boundary"]

_log = logging.getLogger(__name__)


@contextmanager
def plugin_boundary(component: str, action: str, *, broken: type[InfrastructureError] = PluginError) -> Iterator[None]:
    """Run code of a component, such as `policy 'torch'`, in a stage such as `sample`.

    Args:
        broken: what an infrastructure error becomes that no boundary inside has classified.

    Raises:
        InfrastructureError: of the class `broken`, or of an inner boundary's.
        KernelRLError: anything the component raised that is not already a message for the user. The traceback goes to
            the log.
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
        raise KernelRLError(f"{component} failed in {action}: {type(error).__name__}: {error}") from error


def _is_asked_to_end() -> bool:
    """Whether the caller's task is being cancelled. Otherwise a cancellation is the component's own, and a task group
    would take it for no failure at all."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop in this thread
        return False
    return task is not None and task.cancelling() > 0


def first_error(error: BaseException) -> BaseException:
    """The first leaf of nested exception groups: what a task group was cancelled for."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
