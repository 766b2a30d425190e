"""Names of KernelBench: tasks by level and number, and the kernel files of its `runs` directories."""

from __future__ import annotations

import re

import attrs

__all__ = ["KernelFile", "parse_kernel_file", "task_place"]

_KERNEL_FILE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_NUMBER = re.compile(r"(\d+)(?:_.*)?")


@attrs.frozen
class KernelFile:
    """A kernel file of KernelBench."""

    level: int
    """Level of the task."""
    number: int
    """Number of the task in its level."""
    sample: int
    """Index of the sample of the task, from 0."""

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"level_{self.level}_problem_{self.number}_sample_{self.sample}_kernel.py"


def parse_kernel_file(name: str) -> KernelFile | None:
    """The parts of a file name; None: it is not that of a kernel of KernelBench."""
    match = _KERNEL_FILE.fullmatch(name)
    return KernelFile(*map(int, match.groups())) if match else None


def task_place(task_id: str, level: int | None) -> tuple[int, int] | None:
    """Level and number of a task, such as (1, 19) of `kernelbench/1/19` and of `directory/level1/19_ReLU`; None if the
    last part of the id does not begin with a number, or the task has no level."""
    match = _NUMBER.fullmatch(task_id.rpartition("/")[2])
    return (level, int(match[1])) if match and level is not None else None
