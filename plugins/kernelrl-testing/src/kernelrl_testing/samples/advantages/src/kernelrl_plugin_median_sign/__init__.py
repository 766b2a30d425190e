"""Advantage `median_sign` for kernelrl."""

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_advantages() -> list[Component]:
    return [
        Component(
            "median_sign",
            target="kernelrl_plugin_median_sign.advantage:make",
            config="kernelrl_plugin_median_sign.options:MedianSignConfig",
            summary="Sign of the return minus the median of the group",
        )
    ]
