"""Everything that only reads runs: reports, live views, comparisons and exports."""

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
        Component(
            "watch",
            target="kernelrl_report.watch_command:command",
            summary="Show a run live: curves, rates, findings, cost.",
        ),
        Component(
            "export",
            target="kernelrl_report.export_command:command",
            summary="Write kernels, samples or weights for other tools.",
        ),
        Component(
            "distill",
            target="kernelrl_report.distill_command:command",
            summary="Export the best samples of a run as supervised data.",
        ),
        Component(
            "runs compare",
            target="kernelrl_report.compare_command:command",
            summary="Compare held-out evaluations of runs.",
        ),
        Component(
            "runs suspects",
            target="kernelrl_report.suspects_command:command",
            summary="List the samples that a person should review.",
        ),
    ]
