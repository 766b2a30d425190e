"""Policy `bandit` for kernelrl."""

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_policies() -> list[Component]:
    return [
        Component(
            "bandit",
            target="kernelrl_plugin_bandit.policy:Bandit",
            config="kernelrl_plugin_bandit.options:BanditConfig",
            summary="Chooses among fixed replies, and learns which",
        )
    ]
