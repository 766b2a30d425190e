"""Controlled experiments: the effect of a change to a recipe.

The command composes runs and held-out evaluations of the core. It has the core's version and may import its private
modules.
"""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "ablate",
            target="kernelrl_experiments.ablate_command:command",
            summary="Measure the effect of a change to a recipe.",
        )
    ]
