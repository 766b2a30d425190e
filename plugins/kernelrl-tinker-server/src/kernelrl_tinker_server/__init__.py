"""Tinker-compatible server on this machine."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "tinker-server",
            target="kernelrl_tinker_server.command:command",
            summary="Serve a model to Tinker's SDK from this machine",
        )
    ]
