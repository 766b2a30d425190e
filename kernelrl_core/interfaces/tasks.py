'''Task sources: collections of reference programs.

A task source parses references and never executes them: only the judge executes a reference.

    # my_plugin/__init__.py
    from kernelrl_core.api import Component, hookimpl

    @hookimpl
    def kernelrl_tasks():
        return [Component("elementwise", "my_plugin.source:Elementwise")]

    # my_plugin/source.py
    from kernelrl_core.api.errors import UsageError
    from kernelrl_core.api.tasks import Task, TaskSource, parse_task_source

    REFERENCE = """
    import torch

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.{function}(x)

    def get_inputs():
        return [torch.randn(1024)]

    def get_init_inputs():
        return []
    """

    class Elementwise(TaskSource):
        _functions = {"train": ("sin", "cos"), "held_out": ("tanh",)}

        def splits(self):
            return tuple(self._functions)

        def tasks(self, split):
            if split not in self._functions:
                raise UsageError(f"no split {split!r}; known: {', '.join(self._functions)}")
            tasks = []
            for function in self._functions[split]:
                reference = REFERENCE.format(function=function)
                parse_task_source(reference, f"elementwise/{function}")
                tasks.append(Task(id=f"elementwise/{function}", reference=reference, split=split))
            return tasks

        def manifest(self):
            return {"functions": self._functions}

In a recipe:

    tasks: {use: elementwise}
'''

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.types.tasks import Demonstration, Task

__all__ = ["TaskConfig", "TaskSource"]


@attrs.frozen
class TaskConfig(ComponentConfig):
    """Options of a task source."""

    def remote(self) -> bool:
        """True if listing the tasks uses the network. `kernelrl validate` then does not check the splits."""
        return False


class TaskSource(ABC):
    """A collection of tasks."""

    @abstractmethod
    def splits(self) -> Sequence[str]:
        """Names of the splits, the training split first."""

    @abstractmethod
    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split, in a stable order.

        Raises:
            UsageError: unknown split, missing file, or a file that is not a task.
        """

    def manifest(self) -> Mapping[str, Any]:
        """Identity of the collection (revision, hashes, hold-out), saved with the run."""
        return {}

    def demonstrations(self, task: Task) -> Sequence[Demonstration]:
        """Correct and flawed kernels for a task of the training split, for the warm start; empty for other tasks."""
        return ()
