"""Settings of torch that the code of a task changes for the whole process, such as the default dtype.

They hold in all calls of that task, as in a file of its own, and in no call of another one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

__all__ = ["forget_settings", "settings_of_task"]

_Setting = tuple[Callable[[], Any], Callable[[Any], Any]]
"""Functions that return and set a value."""


def _attribute(owner: Any, name: str) -> _Setting:
    return partial(getattr, owner, name), partial(setattr, owner, name)


def _matmul_precision() -> str | None:
    """The older setting of products in single precision. None: torch refuses it after a newer one (from 2.9 on)."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _set_matmul_precision(precision: str | None) -> None:
    if precision is not None:
        torch.set_float32_matmul_precision(precision)


def _precisions() -> tuple[_Setting, ...]:
    """Settings of single precision by library and operation. The older setting changes some of the newer ones."""
    older = (_matmul_precision, _set_matmul_precision)
    backends: Any = torch.backends
    if not hasattr(backends.cuda.matmul, "fp32_precision"):
        return older, _attribute(backends.cudnn, "allow_tf32")
    operations = [backends.cuda.matmul]
    for library in (backends.cudnn, backends.mkldnn):
        operations += [getattr(library, name, None) for name in ("matmul", "conv", "rnn")]
    owners = (backends, backends.cudnn, backends.mkldnn, *operations)
    return older, *(_attribute(owner, "fp32_precision") for owner in owners if hasattr(owner, "fp32_precision"))


_SETTINGS: tuple[_Setting, ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    *(_attribute(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic")),
    *_precisions(),
)
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
