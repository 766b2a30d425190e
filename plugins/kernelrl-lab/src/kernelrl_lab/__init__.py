"""Known reward hacks and honest kernels, to measure an evaluator."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "lab",
            target="kernelrl_lab.command:command",
            summary="Measure an evaluator with known hacks and honest kernels.",
        ),
        Component(
            "bench",
            target="kernelrl_lab.bench_command:command",
            summary="Measure the speed of an evaluator, and its agreement with another one.",
        ),
    ]
