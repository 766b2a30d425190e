"""The plugin `core`: the advantage estimators, declared through the same hook as those of other plugins."""

from __future__ import annotations

from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.hooks import hookimpl


@hookimpl
def kernelrl_advantages() -> list[Component]:
    module = "kernelrl_core.algorithms.estimators"
    return [
        Component(
            "grpo",
            f"{module}:grpo",
            config=f"{module}:GrpoOptions",
            summary="Return minus group mean, divided by the group's standard deviation",
            default=True,
        ),
        Component("dr_grpo", f"{module}:dr_grpo", summary="Return minus group mean"),
        Component("rloo", f"{module}:rloo", summary="Return minus mean of the other episodes"),
        Component(
            "trloo",
            f"{module}:trloo",
            config=f"{module}:TrlooOptions",
            summary="Return minus mean of the other episodes at the same turn",
        ),
        Component(
            "per_turn",
            f"{module}:per_turn",
            config=f"{module}:PerTurnOptions",
            summary="Return minus mean of all episodes at the same turn",
        ),
    ]
