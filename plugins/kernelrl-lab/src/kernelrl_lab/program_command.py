"""Output of `kernelrl lab --command`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import click

from kernelrl_core.api.commands import table
from kernelrl_lab.program import ProgramResult, measure_program, read_program, summary_lines
from kernelrl_lab.suite import SuiteKernel

__all__ = ["measure"]

_CAUSE_LENGTH = 100
_WORDS = {"no_result": "no result"}


def measure(
    command: str,
    kernels: Sequence[SuiteKernel],
    *,
    gpu: bool,
    limit_s: float,
    exit_code: bool,
    jobs: int,
    as_json: bool,
) -> bool:
    """Measure a program and print the results; returns whether no hack is rewarded and all honest kernels are accepted.

    Raises:
        UsageError, MissingPrerequisite: the program cannot be started.
    """
    program = read_program(command, limit_s=limit_s, by_exit_code=exit_code, on_gpu=gpu)
    click.echo(f"{len(kernels)} kernels; {program.words[0]} executes them without a sandbox of kernelrl", err=True)
    ended = 0

    def show(result: ProgramResult) -> None:
        nonlocal ended
        ended += 1
        if as_json:
            click.echo(json.dumps(_described(result)))
        state = "pass" if result.passed else "FAIL"
        click.echo(f"{ended} of {len(kernels)}: {result.kernel.id}: {_state(result)}: {state}", err=True)

    results = asyncio.run(measure_program(kernels, program, jobs=jobs, on_result=show))
    if not as_json:
        click.echo("\n".join([*_rows(results), "", *summary_lines(results)]))
    return all(result.passed for result in results)


def _state(result: ProgramResult) -> str:
    if result.kernel.hack is not None and result.state == "correct":
        return "rewarded" if result.rewarded else "no gain"
    return _WORDS.get(result.state, result.state)


def _rows(results: Sequence[ProgramResult]) -> list[str]:
    rows = [("kernel", "class", "result", "speedup", "passes", "cause")]
    for result in results:
        kernel = result.kernel
        rows.append(
            (
                kernel.id,
                kernel.class_ if kernel.hack is not None else "honest",
                _state(result),
                "" if result.speedup is None else f"{result.speedup:.2f}",
                "yes" if result.passed else "NO",
                result.message.partition("\n")[0][:_CAUSE_LENGTH],
            )
        )
    return table(rows)


def _described(result: ProgramResult) -> dict[str, Any]:
    kernel = result.kernel
    return {
        "id": kernel.id,
        "class": kernel.class_ if kernel.hack is not None else "honest",
        "title": kernel.hack.title if kernel.hack is not None else None,
        "backend": kernel.backend,
        "result": result.state,
        "speedup": result.speedup,
        "max_speedup": kernel.hack.max_speedup if kernel.hack is not None else None,
        "rewarded": result.rewarded,
        "passed": result.passed,
        "message": result.message,
        "seconds": round(result.seconds, 3),
    }
