'''Task sources: collections of reference programs.

A task source parses references and never executes them: only the judge executes a reference.

    # src/kernelrl_plugin_elementwise/__init__.py
    """Task source `elementwise` for kernelrl."""

    from kernelrl_core.api import Component, hookimpl


    @hookimpl
    def kernelrl_tasks() -> list[Component]:
        return [
            Component(
                "elementwise",
                target="kernelrl_plugin_elementwise.tasks:Elementwise",
                config="kernelrl_plugin_elementwise.options:ElementwiseConfig",
                summary="Three functions of PyTorch, element by element",
            )
        ]

    # src/kernelrl_plugin_elementwise/options.py
    """Options of the task source `elementwise`."""

    import attrs

    from kernelrl_core.api.config import PositiveInt
    from kernelrl_core.api.tasks import TaskConfig


    @attrs.frozen
    class ElementwiseConfig(TaskConfig):
        """Options."""

        size: PositiveInt = PositiveInt(1024)
        """Number of elements of the input."""

    # src/kernelrl_plugin_elementwise/tasks.py
    """The task source `elementwise`."""

    from collections.abc import Mapping, Sequence
    from typing import Any

    from kernelrl_core.api.errors import UsageError
    from kernelrl_core.api.tasks import Task, TaskSource, parse_task_source
    from kernelrl_plugin_elementwise.options import ElementwiseConfig

    FUNCTIONS = {"train": ("sin", "cos"), "held_out": ("tanh",)}
    REFERENCE = """\\
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

    # tests/test_elementwise.py
    """Contract and tasks of the task source `elementwise`."""

    from kernelrl_core.testing.contracts import TaskSourceContract
    from kernelrl_plugin_elementwise.options import ElementwiseConfig
    from kernelrl_plugin_elementwise.tasks import Elementwise


    class TestContract(TaskSourceContract):
        component = "elementwise"


    def test_references_call_their_function() -> None:
        (task,) = Elementwise(ElementwiseConfig()).tasks("held_out")
        assert task.id == "elementwise/tanh"
        assert "torch.tanh(x)" in task.reference

In a recipe:

    tasks: {use: elementwise, size: 65536}
    policy: {warm_start: null}   # it needs demonstrations
'''

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

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

    training_splits: ClassVar[Sequence[str]] = ()
    """Splits beside the first whose tasks may have demonstrations. Tasks of all others are held out."""

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
