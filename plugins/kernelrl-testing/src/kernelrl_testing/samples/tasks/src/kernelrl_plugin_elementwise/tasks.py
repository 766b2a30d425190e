"""The task source `elementwise`."""

from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.tasks import Task, TaskSource, parse_task_source
from kernelrl_plugin_elementwise.options import ElementwiseConfig

FUNCTIONS = {"train": ("sin", "cos"), "held_out": ("tanh",)}
REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.{function}(x)


def get_inputs():
    return [torch.randn({size})]


def get_init_inputs():
    return []
"""


class Elementwise(TaskSource):
    """One task per function."""

    def __init__(self, config: ElementwiseConfig) -> None:
        self._size = config.size

    def splits(self) -> Sequence[str]:
        return tuple(FUNCTIONS)

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in FUNCTIONS:
            raise UsageError(f"no split {split!r}", fix=f"choose one of: {', '.join(FUNCTIONS)}")
        return [self._task(function, split) for function in FUNCTIONS[split]]

    def manifest(self) -> Mapping[str, Any]:
        return {"functions": {split: list(functions) for split, functions in FUNCTIONS.items()}, "size": self._size}

    def _task(self, function: str, split: str) -> Task:
        reference = REFERENCE.format(function=function, size=self._size)
        task_id = f"elementwise/{function}"
        parse_task_source(reference, task_id)
        return Task(task_id, reference, split)
