"""`kernelrl check`: evaluate kernel files against one task."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Sequence

import click

from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.environment.kernel_check import (
    CheckedKernel,
    CheckOptions,
    KernelCheck,
    component_keys,
    default_keys,
    open_check,
    why_no_speedup,
)
from kernelrl_core.environment.one_kernel import find_backends
from kernelrl_core.errors import UsageError, more
from kernelrl_core.planning.load import merge_recipe
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.recipe.evaluation_spec import EvaluationSpec
from kernelrl_core.sources.kernel_files import STANDARD_INPUT, skipped_files
from kernelrl_core.types import Evaluation, EvaluationSettings, Turn

_KEY_VALUE = re.compile(r"[A-Za-z_]\w*(\.\w+)*=")
_MAX_LEVEL = 4
"""Highest `Isolation.level`."""
_FOUND = {"clean": "no hack found", "suspect": "suspect", "hack": "hack found"}
"""Verdict -> its words in the first line."""


@click.command("check")
@click.argument("words", nargs=-1, required=True, metavar="TASK KERNEL... [KEY=VALUE]...")
@click.option("--backend", "-b", help="Backend of the kernel, such as cuda. Default: that of --recipe, or triton.")
@click.option("--evaluator", "-e", help="Evaluator component. Default: that of --recipe, a running service, or local.")
@click.option("--recipe", "-r", help="Take the evaluation keys of this recipe; its other keys may have mistakes.")
@click.option("--no-timing", is_flag=True, help="Do not measure the speedup.")
@click.option("--seed", type=int, help="Seed of the inputs, for a reproducible evaluation. Default: random.")
@click.option("--cache", is_flag=True, help="Use the evaluation cache. Without --seed, the seed is 0.")
@click.option("--strict", is_flag=True, help="Exit with 1 also for a correct kernel with verdict suspect.")
@click.option("--confine", is_flag=True, help="Someone else wrote the task: run its reference in a sandbox, too.")
@click.option("--watch", is_flag=True, help="Evaluate a kernel again when its file changes, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per kernel, each on one line.")
@click.pass_context
def command(
    context: click.Context,
    words: tuple[str, ...],
    backend: str | None,
    evaluator: str | None,
    recipe: str | None,
    no_timing: bool,
    seed: int | None,
    cache: bool,
    strict: bool,
    confine: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """Evaluate KERNELs against TASK: build, execute in a sandbox, compare the outputs with the reference, and time.

    TASK is the id of a task (see 'kernelrl tasks list') or a file in KernelBench's format. KERNEL is a Python file that
    defines ModelNew, a saved reply of a model, a folder with such Python files, or - for standard input. Several
    kernels are evaluated concurrently with one started evaluator. KEY=VALUE override evaluation keys of the recipe.

    A correct kernel is timed where that is possible: C++ on the CPU, other languages on a GPU. Triton's interpreter has
    no meaningful run time; evaluation.timing=true makes that an error.

    The reference of a task is executed with your rights. With --confine it has no network, no files and no environment
    variables of yours, and cannot read files that it expects. Use it for tasks that you did not write or read.

    Exit code 0: all kernels are correct; 1: one is not; 3: this machine cannot execute one, and the others are correct.

    \b
    Examples:
      kernelrl check starter/1/relu_double my_kernel.py
      kernelrl check my_task.py reply.txt --seed 7 --json
      kernelrl check starter/1/relu_double kernels/ --strict
      kernelrl check starter/1/relu_double my_kernel.py --watch
      kernelrl check my_task.py my_kernel.py -b cuda evaluation.timing_trials=100
    """
    begin = time.monotonic()
    names, overrides = split_arguments(words)
    if len(names) < 2:
        lacking = "no kernel is given" if names else "no task and no kernel are given"
        raise UsageError(lacking, fix="name a task, then a file with a kernel, or - for standard input")
    task, *files = names
    if watch and STANDARD_INPUT in files:
        raise UsageError("--watch needs a file, not standard input")
    for line in skipped_files(files):
        _say(line)
    if recipe:
        merged, chosen = merge_recipe(recipe, [*component_keys(backend, evaluator), *overrides]), None
    else:
        merged, chosen = default_keys(backend, evaluator, overrides, registry())
    options = CheckOptions(task, tuple(files), merged, chosen, not no_timing, seed, cache, confine, watch)
    check, checked = asyncio.run(_show(options, begin, as_json=as_json))
    if check.several and not as_json:
        print_lines(["", *_table(checked)])
    spec = check.spec
    for other in sorted({name for one in checked if (name := _other_backend(one.turn, spec, registry()))}):
        _say(f"note: evaluated with backend {spec.backend.use}; for this kernel, try -b {other}")
    context.exit(_exit_code(checked, strict=strict))


def split_arguments(words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Kernel files, and the overrides `KEY=VALUE` among the arguments. An existing file is never an override."""
    overrides = tuple(word for word in words if _KEY_VALUE.match(word) and not os.path.exists(word))
    return [word for word in words if word not in overrides], overrides


async def _show(options: CheckOptions, begin: float, *, as_json: bool) -> tuple[KernelCheck, list[CheckedKernel]]:
    """Check the kernels and print each result as soon as it is known."""
    checked: list[CheckedKernel] = []
    async with (
        open_check(options, registry(), _say) as check,
        contextlib.aclosing(check.results(begin)) as results,
    ):
        async for one in results:
            checked.append(one)
            if as_json:
                print_json(one.row(check.spec, check.untimed))
                continue
            lines = turn_lines(one.turn, check.untimed, cached=one.cached, settings=check.spec.settings)
            print_lines([f"{one.name}:", *lines] if check.several else lines)
    return check, checked


def _say(line: str) -> None:
    click.echo(line, err=True)


def _exit_code(checked: Sequence[CheckedKernel], *, strict: bool) -> int:
    turns = [one.turn for one in checked]
    wrong = [turn for turn in turns if not turn.correct or (strict and turn.verdict.value != "clean")]
    return 0 if not wrong else 3 if all(map(_was_only_built, wrong)) else 1


def _table(checked: Sequence[CheckedKernel]) -> list[str]:
    """One row per kernel, and the number of correct ones."""
    rows = []
    for name, turn in ((one.name, one.turn) for one in checked):
        speedup = "" if turn.speedup is None else f"speedup {turn.speedup:.2f}"
        outcome = "not executed" if _was_only_built(turn) else turn.outcome.value
        rows.append((name, outcome, _FOUND[turn.verdict.value], speedup))
    return [*table(rows), f"{sum(one.turn.correct for one in checked)} of {len(checked)} correct"]


def _other_backend(turn: Turn, spec: EvaluationSpec, registry: Registry) -> str:
    """Another installed backend that finds kernels in the source, in which the selected one finds none; else empty."""
    if turn.correct or turn.candidate is None or turn.candidate.facts.kernels:
        return ""
    others = [name for name in find_backends(turn.candidate.source, registry) if name != spec.backend.use]
    return next(iter(others), "")


def _was_only_built(turn: Turn) -> bool:
    """Whether the candidate was built and not executed, because this machine cannot execute it."""
    return turn.evaluation is not None and bool(turn.evaluation.checked)


def _speed(evaluation: Evaluation, speedup: float) -> str:
    text = f"{speedup:.2f}"
    if evaluation.speedup_ci is not None:
        low, high = evaluation.speedup_ci
        text += f" ({low:.2f} to {high:.2f})"
    if evaluation.runtime is not None and evaluation.baseline is not None:
        text += f": {evaluation.runtime.median_us:.1f} us against {evaluation.baseline.median_us:.1f} us"
    return text


def _first_line(evaluation: Evaluation) -> str:
    return evaluation.message.partition("\n")[0]


def _dtypes(evaluation: Evaluation) -> str:
    """Dtypes of the task and their cast; empty if all floating-point ones are float32 without a cast."""
    facts = evaluation.facts
    shown = facts.dtypes if facts.dtypes is not None and (facts.cast or not facts.dtypes.are_usual) else None
    cast = f"cast by evaluation.precision to {facts.cast}" if facts.cast else ""
    return "; ".join(str(part) for part in (shown, cast) if part)


def turn_lines(
    turn: Turn, why_untimed: str = "", *, cached: bool = False, settings: EvaluationSettings | None = None
) -> list[str]:
    """Outcome, verdict, speedup, findings and message of a turn in words."""
    evaluation = turn.evaluation
    outcome = "not executed" if _was_only_built(turn) else turn.outcome.value
    lines = [f"{outcome}; {_FOUND[turn.verdict.value]}  {turn.task.id}"]
    findings = [
        f"finding   {found.rule} ({', '.join(filter(None, [found.severity.value, found.checker]))}): {found.evidence}"
        for found in turn.findings
    ]
    shown = {found.evidence for found in turn.findings}
    message = [line for line in turn.message.splitlines() if line not in shown]
    if any(line.startswith("fix: ") for line in message):
        message.append(more("infrastructure"))
    if evaluation is None:
        return [*lines, *findings, *message]
    isolation = evaluation.isolation
    missing = ", ".join(isolation.missing)
    sandbox = f"sandbox   level {isolation.level}/{_MAX_LEVEL}"
    sandbox += f"; no {missing} (see 'kernelrl doctor')" if missing else ""
    if _was_only_built(turn):
        backend = turn.candidate.backend if turn.candidate else ""
        fix = [f"fix: use a machine with a GPU for backend {backend}", more("gpu")] if backend else []
        return [*lines, *message, *fix, sandbox, *findings]
    if evaluation.compiled:
        lines.append(f"trials    {evaluation.tests_passed} of {evaluation.tests_total} passed")
    if dtypes := _dtypes(evaluation):
        lines.append(f"dtypes    {dtypes}")
    if turn.speedup is not None:
        lines.append(f"speedup   {_speed(evaluation, turn.speedup)}")
    elif turn.correct:
        lines.append(f"speedup   not measured: {why_no_speedup(turn, why_untimed)}")
    if evaluation.outcome is not turn.outcome:
        lines.append(
            f"ended     {evaluation.outcome.value}{f': {first}' if (first := _first_line(evaluation)) else ''}"
        )
    if evaluation.outcome.value == "timeout" and settings is not None:
        limits = f"evaluation.timeout_s={settings.timeout_s:g}, evaluation.build_timeout_s={settings.build_timeout_s:g}"
        slow = "; an interpreter on the CPU is slow" if evaluation.provenance.get("mode") == "interpreter" else ""
        lines.append(f"limits    {limits}{slow}")
    if cached:
        lines.append("cached    this is the result of an earlier check with the same seed")
    return [*lines, sandbox, *findings, *message]
