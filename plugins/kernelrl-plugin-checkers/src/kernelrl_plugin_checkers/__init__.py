"""Hack-checkers on the source of a candidate, and on what was measured of it."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_checkers() -> list[Component]:
    return [
        Component(
            "source_rules",
            target="kernelrl_plugin_checkers.source_rules:SourceRules",
            config="kernelrl_plugin_checkers.config:SourceRulesConfig",
            summary="Rules on the Python and the C++ of a source: own kernels, no library compute, no tampering",
        ),
        Component(
            "evaluation_rules",
            target="kernelrl_plugin_checkers.evaluation_rules:EvaluationRules",
            config="kernelrl_plugin_checkers.config:EvaluationRulesConfig",
            summary="What was measured, against what is possible: faster than memory, time in library kernels",
        ),
        Component(
            "kernelguard",
            target="kernelrl_plugin_checkers.kernelguard:Kernelguard",
            config="kernelrl_plugin_checkers.config:KernelguardConfig",
            summary="The patterns of the package kernelguard, as findings of severity note or suspect",
            requires=Requires(modules=("kernelguard",), fix="pip install 'kernelrl-plugin-checkers[kernelguard]'"),
        ),
    ]
