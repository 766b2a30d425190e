"""`kernelrl lab`: measure an evaluator with known hacks and honest kernels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrl_experiments.suite import BrokenPair
    from kernelrl_lab.running import Report, Result
    from kernelrl_lab.suite import SuiteKernel

_CAUSE_LENGTH = 100


@click.command("lab")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--suite", default="hacks", show_default=True, metavar="DIR", help="A directory, or hacks or honest.")
@click.option("--only", multiple=True, metavar="ID", help="Kernel, task or class of hacks. May be repeated.")
@click.option("--gpu", is_flag=True, help="Execute kernels on the GPU instead of the CPU.")
@click.option("--backend", "-b", default="", help="Backend of all honest kernels. Default: found in each source.")
@click.option("--evaluator", "-e", default="local", show_default=True, help="The evaluator that is measured.")
@click.option("--command", "program", metavar="PROGRAM", help="Measure this program with {task} and {kernel} instead.")
@click.option("--exit-code", is_flag=True, help="The program prints no JSON; exit code 0 means correct, 1 incorrect.")
@click.option(
    "--limit-s",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="Seconds of the program for one kernel.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Programs at a time. More than one disturbs their times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per kernel, each on one line.")
@click.pass_context
def command(
    context: click.Context,
    overrides: tuple[str, ...],
    suite: str,
    only: tuple[str, ...],
    gpu: bool,
    backend: str,
    evaluator: str,
    program: str | None,
    exit_code: bool,
    limit_s: float,
    jobs: int,
    as_json: bool,
) -> None:
    """Evaluate known hacks and honest kernels.

    A suite is a directory: each directory in it that contains task.py is a task, and the other Python files beside
    task.py are kernels. Where hack.toml declares candidate.py to be a hack, it passes with one of the endings that
    hack.toml expects, which are never correct and clean with a gain. Every other kernel passes if it is correct and
    clean. Two suites are bundled: hacks (with look-alikes) and honest. KEY=VALUE override evaluation keys.

    --command measures any evaluator: a program that gets the files of a task and a kernel and prints a JSON object with
    "correct" and, if it measures times, "speedup". The program executes the kernels, hacks included, WITHOUT a sandbox
    of kernelrl: run it where nothing can be damaged, such as in a container without keys and network.

    Exit code 0: all kernels pass; 1: one does not, or is broken; 3: this machine cannot execute one, and the others
    pass.

    \b
    Examples:
      kernelrl lab
      kernelrl lab --only caching --json
      kernelrl lab --gpu --json
      kernelrl lab --suite honest
      kernelrl lab --suite my_kernels/ evaluation.timing=false
      kernelrl lab --command 'python evaluate.py {task} {kernel}'
    """
    from kernelrl_core.api.episodes import registry
    from kernelrl_core.api.errors import ExitCode
    from kernelrl_lab.running import run
    from kernelrl_lab.suite import read_hacks, suite_folder

    device = "gpu" if gpu else "cpu"
    kernels, broken = read_hacks(suite_folder(suite), registry=registry(), backend=backend)
    kernels = _chosen(kernels, only, device)
    broken = [one for one in broken if not only or one.id in only]
    if program is not None:
        from kernelrl_lab.program_command import measure

        _refuse(context, overrides, ("evaluator",), "has no effect with --command")
        measured = measure(program, kernels, gpu=gpu, limit_s=limit_s, exit_code=exit_code, jobs=jobs, as_json=as_json)
        click.echo("\n".join(f"broken: {one.id}: {one.message}" for one in broken), err=True, nl=bool(broken))
        context.exit(ExitCode.OK if measured and not broken else ExitCode.FAILED)
    _refuse(context, (), ("exit_code", "limit_s", "jobs"), "has no effect without --command")
    click.echo(f"{len(kernels)} kernels; their tasks are audited first", err=True)
    if as_json:
        for one in broken:
            document = {"id": one.id, "ending": "broken", "passed": False, "message": one.message}
            click.echo(json.dumps({**document, "causes": one.message.splitlines()}))
    ended = 0

    def show(result: Result) -> None:
        nonlocal ended
        ended += 1
        if as_json:
            click.echo(json.dumps(_described(result)))
        state = "pass" if result.passed else "FAIL"
        if result.skipped:
            state = "skipped"
        click.echo(f"{ended} of {len(kernels)}: {result.kernel.id}: {result.ending}: {state}", err=True)

    report = run(kernels, registry=registry(), device=device, evaluator=evaluator, overrides=overrides, on_result=show)
    if not as_json:
        click.echo("\n".join(_lines(report, broken)))
    if broken or not report.passed:
        context.exit(ExitCode.FAILED)
    context.exit(ExitCode.MISSING if report.skipped else ExitCode.OK)


def _refuse(context: click.Context, overrides: Sequence[str], options: Sequence[str], why: str) -> None:
    """Raise an error for options that are given and have no effect."""
    from kernelrl_core.api.errors import UsageError

    given = [name for name in options if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    words = [*overrides, *(f"--{name.replace('_', '-')}" for name in given)]
    if words:
        raise UsageError(f"{words[0]}: {why}")


def _chosen(kernels: Sequence[SuiteKernel], only: Sequence[str], device: str) -> list[SuiteKernel]:
    """The kernels that `only` names, or all kernels for a device."""
    from kernelrl_core.api.errors import LookupFailed, suggestion

    names = {name for kernel in kernels for name in _names(kernel)}
    for name in only:
        if name not in names:
            raise LookupFailed(f"--only {name}: no such kernel, task or class; {suggestion(name, names)}")
    if only:
        return [kernel for kernel in kernels if _names(kernel) & {*only} and device in kernel.devices]
    return [kernel for kernel in kernels if device in kernel.devices]


def _names(kernel: SuiteKernel) -> set[str]:
    return {kernel.id, kernel.id.rpartition("/")[0] or kernel.id, kernel.class_}


def _described(result: Result) -> dict[str, Any]:
    kernel = result.kernel
    return {
        "id": kernel.id,
        "class": kernel.class_,
        "title": kernel.hack.title if kernel.hack is not None else None,
        "backend": kernel.backend,
        "expected": sorted(kernel.hack.expected) if kernel.hack is not None else ["clean"],
        "ending": result.ending,
        "passed": result.passed,
        "outcome": result.outcome.value if result.executed else None,
        "verdict": result.verdict.value if result.executed else None,
        "speedup": result.speedup,
        "max_speedup": kernel.hack.max_speedup if kernel.hack is not None else None,
        "findings": [
            {
                "rule": found.rule,
                "severity": found.severity.value,
                "evidence": found.evidence,
                "checker": found.checker,
                "line": found.line,
            }
            for found in result.findings
        ],
        "quarantine": list(result.quarantine),
        "message": result.message,
        "causes": list(result.causes),
        "seconds": round(result.seconds, 3),
    }


def _lines(report: Report, broken: Sequence[BrokenPair]) -> list[str]:
    from kernelrl_core.api.commands import table

    rows = [("kernel", "outcome", "verdict", "speedup", "passes", "findings", "cause")]
    rows += [(one.id, "broken", "", "", "NO", "", one.message[:_CAUSE_LENGTH]) for one in broken]
    for result in report.results:
        passes = "yes" if result.passed else "NO"
        rows.append(
            (
                result.kernel.id,
                result.outcome.value if result.executed else result.ending,
                result.verdict.value if result.executed else "",
                "" if result.speedup is None else f"{result.speedup:.2f}",
                "" if result.skipped else passes,
                ", ".join(sorted({f"{found.rule} ({found.severity.value})" for found in result.serious})),
                "" if result.clean else next(iter(result.causes), "")[:_CAUSE_LENGTH],
            )
        )
    lines = table(rows)
    if report.hacks:
        lines.append(f"hacks stopped: {sum(result.passed for result in report.hacks)} of {len(report.hacks)}")
    if report.honest:
        clean = sum(result.passed for result in report.honest)
        lines.append(f"honest kernels that are correct and clean: {clean} of {len(report.honest)}")
    if report.skipped:
        lines.append(f"skipped: {len(report.skipped)}")
    return lines
