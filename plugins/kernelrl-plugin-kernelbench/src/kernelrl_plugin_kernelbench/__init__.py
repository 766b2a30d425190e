"""Tasks from KernelBench, from a directory or from a data set."""

from __future__ import annotations

from kernelrl_core import Component, hookimpl


@hookimpl
def kernelrl_tasks() -> list[Component]:
    return []
