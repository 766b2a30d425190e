"""Feedback formatter `terse` for kernelrl."""

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_feedback() -> list[Component]:
    return [
        Component(
            "terse",
            target="kernelrl_plugin_terse.feedback:Terse",
            config="kernelrl_plugin_terse.options:TerseConfig",
            summary="Outcome and message in one line",
        )
    ]
