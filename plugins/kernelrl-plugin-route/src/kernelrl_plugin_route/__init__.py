"""The evaluator that distributes candidates among other evaluators."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_evaluators() -> list[Component]:
    return [
        Component(
            "route",
            target="kernelrl_plugin_route.evaluator:RouteEvaluator",
            config="kernelrl_plugin_route.config:RouteConfig",
            summary="Distributes candidates among other evaluators",
        )
    ]
