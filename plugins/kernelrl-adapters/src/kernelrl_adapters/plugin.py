"""The plugin `adapters`: the command that converts configurations of other systems."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "recipes convert",
            target="kernelrl_adapters.convert_command:command",
            summary="Convert a configuration of another system.",
        )
    ]
