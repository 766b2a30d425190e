"""The evaluator for candidates on this machine."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_evaluators() -> list[Component]:
    return [
        Component(
            "local",
            target="kernelrl_plugin_local.evaluator:LocalEvaluator",
            config="kernelrl_plugin_local.config:LocalConfig",
            summary="Evaluates candidates in isolated processes on this machine",
            requires=Requires(modules=("torch",), fix="pip install torch"),
            default=True,
        )
    ]
