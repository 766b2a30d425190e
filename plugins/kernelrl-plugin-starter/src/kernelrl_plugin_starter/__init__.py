"""Small original tasks with bundled answers."""

from __future__ import annotations

from kernelrl_core import Component, hookimpl


@hookimpl
def kernelrl_tasks() -> list[Component]:
    return []
