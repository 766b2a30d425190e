"""The domain of a task's inputs: declared by the task, or read from how its inputs are drawn.

A task declares it in its module: `DOMAIN = {"x": "positive", "labels": [0, 63, -100]}`. Keys are parameters of
`forward`. Undeclared inputs are as `kernelrl_judge.task.draws` finds them.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

import attrs
import torch

from kernelrl_judge.protocol.trees import tensors
from kernelrl_judge.task.draws import AS_DRAWN, Domain, drawn_domains
from kernelrl_judge.task.source import TaskError

__all__ = ["Domain", "domains"]

_TINY = 1e-30
_WORDS = {
    "any": Domain("numbers"),
    "as drawn": AS_DRAWN,
    "positive": Domain("numbers", low=_TINY),
    "non-negative": Domain("numbers", low=0.0),
    "probability": Domain("numbers", 0.0, 1.0),
    "special": Domain("numbers", special=True),
    "mask": Domain("truth"),
}


def domains(module: Any, task_id: str, draw: Callable[[], list[Any]]) -> list[Domain]:
    """Domain of each input tensor, in the order of `get_inputs`.

    Args:
        draw: makes the inputs of one call.

    Raises:
        TaskError: `DOMAIN` is malformed, or names an input that `forward` does not have.
    """
    declared = getattr(module, "DOMAIN", {})
    if not isinstance(declared, dict):
        raise TaskError(f"task {task_id}: DOMAIN is no dict: write DOMAIN = {{'x': 'positive'}}")
    names = [*inspect.signature(module.Model.forward).parameters][1:]
    for name in declared:
        if name not in names:
            raise TaskError(f"task {task_id}: DOMAIN: forward has no input {name!r}{_nearest(name, names)}")
    made = draw()
    found = drawn_domains(draw)
    place = 0
    for number, value in enumerate(made):
        name = names[number] if number < len(names) else ""
        for tensor in tensors(value):
            if name in declared:
                found[place] = _read(declared[name], name, tensor, task_id)
            place += 1
    return found


def _read(said: Any, name: str, tensor: torch.Tensor, task_id: str) -> Domain:
    """A declared domain."""
    if isinstance(said, str) and said in _WORDS:
        domain = _WORDS[said]
    elif isinstance(said, list | tuple) and len(said) >= 2 and all(isinstance(one, int | float) for one in said):
        domain = Domain("numbers", said[0], said[1], tuple(said[2:]))
    else:
        near = _nearest(said, list(_WORDS)) if isinstance(said, str) else ""
        fix = f"use one of {', '.join(map(repr, _WORDS))}, or [low, high]"
        raise TaskError(f"task {task_id}: DOMAIN: {name}: unknown domain {said!r}{near}; {fix}")
    if domain.kind != "numbers" or tensor.is_floating_point():
        return domain
    known = torch.iinfo(tensor.dtype) if tensor.dtype is not torch.bool else None
    if known is None or not domain.bounded:
        raise TaskError(
            f"task {task_id}: DOMAIN: {name}: {said!r} is not for {tensor.dtype}; use [low, high] or 'as drawn'"
        )
    return attrs.evolve(domain, kind="integers")


def _nearest(name: object, names: list[str]) -> str:
    near = difflib.get_close_matches(str(name), names, n=1)
    return f" (did you mean {near[0]!r}?)" if near else f" (there are {', '.join(names)})"
