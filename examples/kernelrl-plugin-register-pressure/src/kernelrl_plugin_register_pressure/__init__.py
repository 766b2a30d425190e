"""Reward component `register_pressure` and checker `register_limit` for kernelrl."""

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_rewards() -> list[Component]:
    return [
        Component(
            "register_pressure",
            target="kernelrl_plugin_register_pressure.reward:RegisterPressure",
            config="kernelrl_plugin_register_pressure.options:RegisterPressureConfig",
            summary="Prefers CUDA kernels with few registers and no spills",
        )
    ]


@hookimpl
def kernelrl_checkers() -> list[Component]:
    return [
        Component(
            "register_limit",
            target="kernelrl_plugin_register_pressure.checker:RegisterLimit",
            config="kernelrl_plugin_register_pressure.options:RegisterLimitConfig",
            summary="Reports kernels that spill because the source limits their registers",
        )
    ]
