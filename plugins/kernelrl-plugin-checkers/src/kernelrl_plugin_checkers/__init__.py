"""Hack-checkers on the source of a candidate."""

from __future__ import annotations

from kernelrl_core import Component, hookimpl


@hookimpl
def kernelrl_checkers() -> list[Component]:
    return [
        Component(
            "source_rules",
            target="kernelrl_plugin_checkers.source_rules:SourceRules",
            config="kernelrl_plugin_checkers.config:SourceRulesConfig",
            summary="Rules on the syntax tree: own kernels, no library compute, no tampering",
        )
    ]
