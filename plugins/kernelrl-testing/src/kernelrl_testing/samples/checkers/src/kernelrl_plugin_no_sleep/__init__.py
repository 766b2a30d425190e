"""Checker `no_sleep` for kernelrl."""

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_checkers() -> list[Component]:
    return [
        Component(
            "no_sleep",
            target="kernelrl_plugin_no_sleep.checker:NoSleep",
            config="kernelrl_plugin_no_sleep.options:NoSleepConfig",
            summary="Reports calls of time.sleep",
        )
    ]
