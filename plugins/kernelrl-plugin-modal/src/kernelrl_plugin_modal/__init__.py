"""The evaluator for candidates on Modal, and the commands for its app."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_evaluators() -> list[Component]:
    return [
        Component(
            "modal",
            target="kernelrl_plugin_modal.evaluator:ModalEvaluator",
            config="kernelrl_plugin_modal.config:ModalConfig",
            summary="Evaluates candidates in containers on Modal",
            requires=Requires(modules=("modal",), fix="pip install kernelrl-plugin-modal"),
        )
    ]


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "modal",
            target="kernelrl_plugin_modal.commands:command",
            summary="Deploy, inspect and stop the app of evaluator modal.",
        )
    ]
