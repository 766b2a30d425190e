"""Reward component `brevity` for kernelrl."""

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_rewards() -> list[Component]:
    return [
        Component(
            "brevity",
            target="kernelrl_plugin_brevity.reward:Brevity",
            config="kernelrl_plugin_brevity.options:BrevityConfig",
            summary="Prefers short kernels",
        )
    ]
