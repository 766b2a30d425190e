"""The plugin `core`: the advantage estimators, offered through the same hook as anyone's."""

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
            summary="Distance from the group's mean in units of its deviation",
        ),
        Component("dr_grpo", f"{module}:dr_grpo", summary="Distance from the group's mean, not divided"),
        Component("rloo", f"{module}:rloo", summary="Distance from the mean of the other attempts"),
        Component(
            "trloo",
            f"{module}:trloo",
            config=f"{module}:TrlooOptions",
            summary="Distance from the mean of the other attempts at the same turn",
        ),
        Component(
            "per_turn",
            f"{module}:per_turn",
            config=f"{module}:PerTurnOptions",
            summary="Distance from the mean of all attempts at the same turn",
        ),
    ]
