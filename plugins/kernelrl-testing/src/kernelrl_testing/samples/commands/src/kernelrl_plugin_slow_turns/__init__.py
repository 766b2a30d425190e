"""Command `slow-turns` for kernelrl."""

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "slow-turns",
            target="kernelrl_plugin_slow_turns.command:command",
            summary="List the slowest evaluations of a run",
        )
    ]
