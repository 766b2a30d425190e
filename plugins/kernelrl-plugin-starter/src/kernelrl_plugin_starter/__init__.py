"""Small original tasks and generated ones, with demonstrations."""

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
        ),
        Component(
            "compose",
            "kernelrl_plugin_starter.composition.source:ComposeTasks",
            config="kernelrl_plugin_starter.config:ComposeOptions",
            summary="Generated chains of operations, held out by combination, with Triton demonstrations",
        ),
    ]
