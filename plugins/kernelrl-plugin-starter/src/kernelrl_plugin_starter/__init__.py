"""Small original tasks with bundled demonstrations."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_tasks() -> list[Component]:
    return [
        Component(
            "starter",
            "kernelrl_plugin_starter.source:StarterTasks",
            config="kernelrl_plugin_starter.config:StarterOptions",
            summary="Small tasks of three levels, with Triton and C++ demonstrations",
            default=True,
        )
    ]
