"""Settings of torch that the code of a task changes for the whole process, such as the default dtype.

They hold in all calls of that task, as in a file of its own, and in no call of another one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["forget_settings", "settings_of_task"]

_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
)
"""Functions that return and set each setting."""
_USUAL = tuple(get() for get, _ in _SETTINGS)
_of_task: dict[str, tuple[Any, ...]] = {}
"""Settings by the id of the task, of tasks that change one."""


def forget_settings(task_id: str) -> None:
    """Forget the settings of a task, whose source is executed again."""
    _of_task.pop(task_id, None)


@contextlib.contextmanager
def settings_of_task(task_id: str) -> Iterator[None]:
    """A context in which code of a task runs. A setting that the judge has changed keeps the judge's value."""
    before = tuple(get() for get, _ in _SETTINGS)
    wanted = _of_task.get(task_id, _USUAL)
    _set(now if now != usual else own for now, usual, own in zip(before, _USUAL, wanted, strict=True))
    entered = tuple(get() for get, _ in _SETTINGS)
    try:
        yield
    finally:
        after = tuple(get() for get, _ in _SETTINGS)
        found = tuple(
            now if now != at_entry else own for now, at_entry, own in zip(after, entered, wanted, strict=True)
        )
        if found != wanted:
            _of_task[task_id] = found
        _set(before)


def _set(values: Any) -> None:
    for (get, change), value in zip(_SETTINGS, values, strict=True):
        if get() != value:
            change(value)
