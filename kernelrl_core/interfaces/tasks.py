"""Task sources: collections of reference programs.

A task source parses references and never executes them: only the judge executes a reference.

`kernelrl plugins new tasks NAME` writes a sample plugin.
"""

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

    def task_of_file(self, name: str) -> tuple[str, int] | None:
        """Id of the task and index of the sample of a kernel file, for `kernelrl eval --kernels` on files of another
        tool. None: the tool does not name files so; the file is then that of a task with its name.

        Args:
            name: name of the file, such as `level_1_problem_19_sample_0_kernel.py`.

        Raises:
            LookupFailed: the tool names files so, but the collection has no such task.
        """
        return None
