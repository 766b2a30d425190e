"""`kernelrl check`: evaluate kernel files against a task, or a suite of kernels against their tasks."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from kernelrl_core.cli.colours import colour_of
from kernelrl_core.cli.output import print_json, print_lines, require_writable, table
from kernelrl_core.environment.turn_text import backend_note, headline, ratio_text, turn_lines, was_only_built
from kernelrl_core.errors import ExitCode, MissingPrerequisite, UsageError
from kernelrl_core.planning.load import merge_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.sources.kernel_files import STANDARD_INPUT, skipped_files
from kernelrl_core.types import Verdict
from kernelrl_experiments.check.junit import JunitCase, write_junit
from kernelrl_experiments.check.kernel_check import open_check
from kernelrl_experiments.check.options import CheckOptions, component_keys, default_keys, split_arguments
from kernelrl_experiments.check.results import CheckResult

_SLOW_S = 20.0
"""Time without a result after which a line reports it."""


@click.command("check")
@click.argument("task_and_kernels", nargs=-1, metavar="[TASK KERNEL...] [KEY=VALUE]...")
@click.option("--suite", metavar="PATH", help="Evaluate the kernels of this folder or YAML file, each for its task.")
@click.option(
    "--backend",
    "-b",
    help="Backend of the kernels, such as cuda. Default: that of --recipe; else, and in a suite, that of each source.",
)
@click.option("--function", metavar="NAME", help="The kernel is this function of the file, in place of a ModelNew.")
@click.option("--path", "package", metavar="DIR", help="Directory of your package, which the kernels import.")
@click.option("--evaluator", "-e", help="Evaluator component. Default: that of --recipe, a running service, or local.")
@click.option(
    "--recipe", "-r", help="Take the evaluation and the rewards of this recipe; its other keys may have mistakes."
)
@click.option("--no-timing", is_flag=True, help="Do not measure the speedup.")
@click.option("--seed", type=int, help="Seed of the inputs, for a reproducible evaluation. Default: random.")
@click.option("--cache", is_flag=True, help="Use the evaluation cache. Without --seed, the seed is 0.")
@click.option("--lenient", is_flag=True, help="Exit with 0 also for a correct kernel with verdict suspect.")
@click.option("--confine", is_flag=True, help="Someone else wrote the task: run its reference in a sandbox, too.")
@click.option("--watch", is_flag=True, help="Evaluate a kernel again when its file changes, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per kernel, each on one line.")
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the results to this file, as JUnit XML for a CI system.",
)
@click.pass_context
def command(
    context: click.Context,
    task_and_kernels: tuple[str, ...],
    suite: str | None,
    backend: str | None,
    function: str | None,
    package: str | None,
    evaluator: str | None,
    recipe: str | None,
    no_timing: bool,
    seed: int | None,
    cache: bool,
    lenient: bool,
    confine: bool,
    watch: bool,
    as_json: bool,
    junit: Path | None,
) -> None:
    """Evaluate KERNELs against TASK: build, execute in a sandbox, compare the outputs with the reference, and time.

    TASK is the id of a task (see 'kernelrl tasks list') or a file in KernelBench's format, or with a function and
    get_inputs. KERNEL is a Python file that defines ModelNew, or --function; a file of C++, CUDA or HIP with a function
    of tensors; a saved reply of a model; a folder with such files; or - for standard input. Several kernels are
    evaluated concurrently with one started evaluator. KEY=VALUE override evaluation keys of the recipe.

    Kernels may import a package of yours if --path names its directory: its files are copied into the sandbox.

    A correct kernel is timed where that is possible: C++ on the CPU, other languages on a GPU. Triton's interpreter has
    no meaningful run time; evaluation.timing=true makes that an error.

    The reference of a task is executed with your rights. With --confine it has no network, no files and no environment
    variables of yours, and cannot read files that it expects. Use it for tasks that you did not write or read.

    --suite takes many tasks in one call: folders with task.py and kernels beside it; a folder with tasks/NAME.py and
    kernels/NAME.py; files that are named by the ids of their tasks; or a YAML file with a list `kernels` of entries
    {task: FILE_OR_ID, kernel: FILE, backend: NAME}.

    Exit code 0: all kernels are correct, and none is suspect; 1: one is not; 2: a task cannot be used; 3: this machine
    cannot execute one. The first that applies counts, from 1 on.

    \b
    Examples:
      kernelrl check starter/1/relu_double my_kernel.py
      kernelrl check my_task.py reply.txt --seed 7 --json
      kernelrl check starter/1/relu_double kernels/ --lenient
      kernelrl check starter/1/relu_double my_kernel.py --watch
      kernelrl check rms_norm_task.py src/mykernels/rms.py --function rms_norm --path src
      kernelrl check --suite kernels.yaml --junit results.xml
      kernelrl check my_task.py my_kernel.py -b cuda evaluation.timing_trials=100
    """
    begin = time.monotonic()
    task, files, overrides = _arguments(task_and_kernels, suite)
    if watch and STANDARD_INPUT in files:
        raise UsageError("--watch needs a file, not standard input")
    if junit is not None:
        if watch:
            raise UsageError("--junit and --watch exclude each other: --watch has no last result")
        require_writable(junit, "--junit")
    for line in skipped_files(files):
        _say(line)
    if recipe:
        merged, chosen = merge_recipe(recipe, [*component_keys(backend, evaluator), *overrides]), None
    else:
        merged, chosen = default_keys(backend, evaluator, overrides, registry())
    options = CheckOptions(
        task=task,
        names=files,
        merged=merged,
        chosen=chosen,
        timing=not no_timing,
        seed=seed,
        cache=cache,
        confine=confine,
        watch=watch,
        suite=suite or "",
        function=function or "",
        path=package or "",
    )
    several, results = asyncio.run(_show(options, begin, as_json=as_json))
    if several and not as_json:
        print_lines(["", *_table(results)])
    if junit is not None:
        write_junit(junit, "kernelrl check", [_junit_case(one, lenient=lenient) for one in results])
    for line in dict.fromkeys(filter(None, map(_hint, results))):
        _say(line)
    context.exit(_exit_code(results, lenient=lenient))


def _arguments(words: Sequence[str], suite: str | None) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Task, kernel files and overrides. With a suite, there is no task and no file.

    Raises:
        UsageError: task or kernel are missing, or are given besides a suite.
    """
    names, overrides = split_arguments(words)
    if suite is not None:
        if names:
            raise UsageError(f"{names[0]}: --suite names tasks and kernels", fix=f"remove {names[0]} or --suite")
        return "", (), overrides
    if len(names) < 2:
        lacking = "no kernel is given" if names else "no task and no kernel are given"
        raise UsageError(
            lacking, fix="name a task, then a file with a kernel, or - for standard input; or --suite PATH"
        )
    task, *files = names
    return task, tuple(files), overrides


async def _show(options: CheckOptions, begin: float, *, as_json: bool) -> tuple[bool, list[CheckResult]]:
    """Check the kernels and print each result as soon as it is known.

    Returns:
        Whether there is more than one kernel, and the results.
    """
    results: list[CheckResult] = []
    waiting = asyncio.create_task(_say_when_slow())
    async with open_check(options, registry(), _say) as check, contextlib.aclosing(check.results(begin)) as found:
        async for one in found:
            waiting.cancel()
            if as_json:
                print_json(one.row())
            else:
                former = next((old for old in reversed(results) if old.job.place == one.job.place), None)
                head = [f"{one.job.name}:"] if check.several else []
                watched = _watched_lines(one, former) if options.watch else []
                first, *others = _result_lines(one)
                print_lines([*head, _coloured(first), *watched, *others])
            results.append(one)
    return check.several, results


def _result_lines(one: CheckResult) -> list[str]:
    if one.checked is None:
        return [f"{_ending(one)}  {one.job.task.id}", *str(one.error).splitlines()]
    checked = one.checked
    return turn_lines(checked.turn, one.untimed, cached=checked.cached, settings=one.spec.settings)


def _watched_lines(one: CheckResult, former: CheckResult | None) -> list[str]:
    """The time of a result of `--watch`, and its change against the result of the last version."""
    spent_s = one.checked.wall_s if one.checked is not None else 0.0
    lines = [f"time      {time.strftime('%H:%M:%S')}, after {spent_s:.1f} s"]
    if former is None:
        return lines
    changes = []
    if _ending(former) != _ending(one):
        changes.append(f"{_ending(former)} before, {_ending(one)} now")
    before = former.checked.turn.speedup if former.checked is not None else None
    now = one.checked.turn.speedup if one.checked is not None else None
    if before and now:
        changes.append(f"speedup {ratio_text(before)} before, {ratio_text(now)} now ({now / before - 1:+.0%})")
    return [*lines, f"change    {'; '.join(changes) or 'none'}"]


async def _say_when_slow() -> None:
    await asyncio.sleep(_SLOW_S)
    _say(f"no result after {_SLOW_S:g} s; still evaluating")


def _say(line: str) -> None:
    click.echo(line, err=True)


def _exit_code(results: Sequence[CheckResult], *, lenient: bool) -> int:
    codes = {_result_exit_code(one, lenient=lenient) for one in results}
    return next((code for code in (ExitCode.FAILED, ExitCode.USAGE, ExitCode.MISSING) if code in codes), ExitCode.OK)


def _result_exit_code(one: CheckResult, *, lenient: bool) -> int:
    """The exit code of a check with this result alone."""
    if one.checked is None:
        return one.error.exit_code if one.error is not None else ExitCode.FAILED
    turn = one.checked.turn
    if turn.correct and (lenient or turn.verdict is Verdict.CLEAN):
        return ExitCode.OK
    return ExitCode.MISSING if was_only_built(turn) else ExitCode.FAILED


def _junit_case(one: CheckResult, *, lenient: bool) -> JunitCase:
    kinds: dict[int, Literal["", "failure", "error", "skipped"]] = {
        ExitCode.OK: "",
        ExitCode.FAILED: "failure",
        ExitCode.USAGE: "error",
        ExitCode.MISSING: "skipped",
    }
    kind = kinds[_result_exit_code(one, lenient=lenient)]
    if kind == "failure" and one.checked is not None and one.checked.turn.masked:
        kind = "error"
    spent = one.checked.seconds() if one.checked is not None else {}
    return JunitCase(
        group=one.job.task.id,
        name=one.job.name,
        seconds=sum(seconds for phase, seconds in spent.items() if phase != "wait"),
        problem=kind,
        headline=_ending(one),
        text="\n".join(_result_lines(one)),
    )


def _ending(one: CheckResult) -> str:
    """The outcome in the words of the first line, or why there is none."""
    if one.checked is None:
        return "not executed" if isinstance(one.error, MissingPrerequisite) else "task error"
    return headline(one.checked.turn)


def _table(results: Sequence[CheckResult]) -> list[str]:
    """One row per kernel, and the number of correct ones."""
    n_tasks = len({one.job.task.id for one in results})
    rows = []
    for one in results:
        turn = one.checked.turn if one.checked is not None else None
        speedup = "" if turn is None or turn.speedup is None else f"speedup {ratio_text(turn.speedup)}"
        found = "" if turn is None else turn.verdict.value
        task = [one.job.task.id] if n_tasks > 1 else []
        rows.append([one.job.name, *task, _outcome(one), found, speedup])
    turns = [one.checked.turn for one in results if one.checked is not None]
    correct = [turn for turn in turns if turn.correct]
    suspects = sum(turn.verdict is not Verdict.CLEAN for turn in correct)
    count = f"{len(correct)} of {len(results)} correct"
    return [*table(rows), f"{count}, {suspects} of them suspect" if suspects else count]


def _outcome(one: CheckResult) -> str:
    if one.checked is None or was_only_built(one.checked.turn):
        return _ending(one).partition(";")[0]
    return one.checked.turn.outcome.value


def _hint(one: CheckResult) -> str:
    """A line that names another backend for a kernel, if there is one."""
    return backend_note(one.checked.turn, one.spec, registry()) if one.checked is not None else ""


def _coloured(line: str) -> str:
    """A first line for a terminal; click removes the colour where the output is none."""
    return click.style(line, fg=colour_of(line))
