"""The evaluator for candidates behind `kernelrl serve`."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_evaluators() -> list[Component]:
    return [
        Component(
            "http",
            target="kernelrl_plugin_http.evaluator:HttpEvaluator",
            config="kernelrl_plugin_http.config:HttpConfig",
            summary="Evaluates candidates by one or several servers of `kernelrl serve`",
            requires=Requires(modules=("httpcore",), fix="pip install kernelrl-plugin-http"),
            serves_check="kernelrl_plugin_http.address:is_service_running",
        )
    ]
