"""A run in a browser: a report in one file, and a live view."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "report",
            target="kernelrl_report.command:report",
            summary="Write a run as one HTML file.",
        ),
        Component(
            "view",
            target="kernelrl_report.command:view",
            summary="Show runs live in a browser.",
        ),
    ]
