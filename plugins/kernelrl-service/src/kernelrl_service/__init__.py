"""Evaluations and episodes over HTTP."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "serve",
            target="kernelrl_service.command:command",
            summary="Serve evaluations and episodes over HTTP.",
        )
    ]
