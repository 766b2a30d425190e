"""Local Tinker-compatible server."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "tinker-server",
            target="kernelrl_tinker_server.command:command",
            summary="Serve a model on this machine to Tinker's SDK.",
        )
    ]
