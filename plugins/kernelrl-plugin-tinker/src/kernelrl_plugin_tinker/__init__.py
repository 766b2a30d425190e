"""Policy trained on Tinker."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_policies() -> list[Component]:
    return [
        Component(
            "tinker",
            "kernelrl_plugin_tinker.policy:TinkerPolicy",
            config="kernelrl_plugin_tinker.config:TinkerConfig",
            summary="A large model trained with LoRA adapters on Tinker, or on a local server with its API",
        )
    ]
