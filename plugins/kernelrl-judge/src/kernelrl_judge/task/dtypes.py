"""The dtypes of a task's tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from kernelrl_core.api.evaluators import TaskDtypes
from kernelrl_judge.protocol.trees import tensors

__all__ = ["task_dtypes"]


def task_dtypes(inputs: Any, parameters: Iterable[torch.Tensor], outputs: Any) -> TaskDtypes:
    """The dtypes of inputs, parameters and outputs."""
    return TaskDtypes(_names(tensors(inputs)), _names(parameters), _names(tensors(outputs)))


def _names(found: Iterable[torch.Tensor]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for tensor in found))
