"""Checkers of a candidate's source and of its evaluation."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_checkers() -> list[Component]:
    return [
        Component(
            "source_rules",
            target="kernelrl_plugin_checkers.source_rules:SourceRules",
            config="kernelrl_plugin_checkers.config:SourceRulesConfig",
            summary="Rules on a source: a kernel is launched, no fallback, no reference, readable; notes on the rest",
            default=True,
        ),
        Component(
            "evaluation_rules",
            target="kernelrl_plugin_checkers.evaluation_rules:EvaluationRules",
            config="kernelrl_plugin_checkers.config:EvaluationRulesConfig",
            summary="Compares measurements with limits: faster than memory, time in library kernels",
            default=True,
        ),
        Component(
            "kernelguard",
            target="kernelrl_plugin_checkers.kernelguard:Kernelguard",
            config="kernelrl_plugin_checkers.config:KernelguardConfig",
            summary="The patterns of the package kernelguard, as notes",
            requires=Requires(modules=("kernelguard",), fix="pip install 'kernelrl-plugin-checkers[kernelguard]'"),
        ),
    ]
