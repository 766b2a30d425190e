"""`kernelrl check`: evaluate one kernel file against one task."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelrl_core.cli.output import print_json, print_lines

if TYPE_CHECKING:
    from kernelrl_core.interfaces.evaluators import Evaluator
    from kernelrl_core.plugins.registry import Registry
    from kernelrl_core.plugins.use import Use
    from kernelrl_core.recipe.evaluation_spec import EvaluationSpec
    from kernelrl_core.types import Evaluation, Task, Turn

_MAX_BYTES = 4 << 20
_DEFAULT: dict[str, Any] = {
    "backend": {"use": "triton"},
    "evaluator": {"use": "local"},
    "checkers": {"source": {"use": "source_rules"}, "measured": {"use": "evaluation_rules"}},
}
"""Evaluation keys that apply without `--recipe`."""

_MAX_LEVEL = 4
"""Highest `Isolation.level`."""
_FOUND = {"clean": "no hack found", "suspect": "suspect", "hack": "hack found"}
"""Verdict -> its words in the first line."""


@click.command("check")
@click.argument("task")
@click.argument("kernel")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--backend", "-b", help="Backend of the kernel, such as cuda. Default: that of --recipe, or triton.")
@click.option("--evaluator", "-e", help="Evaluator component. Default: that of --recipe, or local (this machine).")
@click.option("--recipe", "-r", help="Take checkers, stated rules, precision and tolerances from this recipe.")
@click.option("--no-timing", is_flag=True, help="Do not measure the speedup.")
@click.option("--seed", type=int, help="Seed of the inputs, for a reproducible evaluation. Default: random.")
@click.option("--cache", is_flag=True, help="Use the evaluation cache. Has an effect only together with --seed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(
    context: click.Context,
    task: str,
    kernel: str,
    overrides: tuple[str, ...],
    backend: str | None,
    evaluator: str | None,
    recipe: str | None,
    no_timing: bool,
    seed: int | None,
    cache: bool,
    as_json: bool,
) -> None:
    """Evaluate KERNEL against TASK: build it, execute it in a sandbox, compare its outputs with the reference, time it.

    TASK is the id of a task (see 'kernelrl tasks list') or a file in KernelBench's format. KERNEL is a Python file that
    defines ModelNew, a saved reply of a model, or - for standard input. KEY=VALUE override evaluation keys of the
    recipe. A correct kernel is timed where that is possible: C++ on the CPU, other languages on a GPU. Triton's
    interpreter has no meaningful run time; evaluation.timing=true makes that an error.

    Exit code 0: the kernel is correct; 1: it is not; 3: this machine cannot execute it.

    \b
    Examples:
      kernelrl check starter/1/relu_double my_kernel.py
      kernelrl check my_task.py reply.txt --seed 7 --json
      kernelrl check my_task.py my_kernel.py -b cuda evaluation.timing_trials=100
    """
    import asyncio

    turn, spec, why_untimed = asyncio.run(
        _checked(task, kernel, overrides, backend, evaluator, recipe, no_timing, seed, cache)
    )
    if as_json:
        print_json(_described(turn, spec, why_untimed))
    else:
        print_lines(_lines(turn, why_untimed))
    chosen = backend or recipe or spec.backend.use != "triton"
    if not chosen and any(finding.rule == "no_kernel" for finding in turn.findings):
        click.echo("note: evaluated with backend triton; select another with -b, such as -b cuda", err=True)
    context.exit(0 if turn.correct else 3 if _was_only_built(turn) else 1)


def _was_only_built(turn: Turn) -> bool:
    """Whether the candidate was built and not executed, because this machine cannot execute it."""
    return turn.evaluation is not None and bool(turn.evaluation.checked)


def _spec(
    name: str | None, backend: str | None, evaluator: str | None, overrides: tuple[str, ...], registry: Registry
) -> tuple[EvaluationSpec, Use | None]:
    """The evaluation specification, and the recipe's task source if `name` is a recipe."""
    from kernelrl_core.planning.load import load_recipe
    from kernelrl_core.recipe.evaluation_spec import read_evaluation_spec, spec_of

    chosen = [f"backend.use={backend}"] if backend else []
    chosen += [f"evaluator.use={evaluator}"] if evaluator else []
    if name:
        recipe = load_recipe(name, [*chosen, *overrides], registry=registry).recipe
        return spec_of(recipe), recipe.tasks
    return read_evaluation_spec(_DEFAULT, [*chosen, *overrides], registry=registry), None


async def _checked(
    task: str,
    kernel: str,
    overrides: tuple[str, ...],
    backend: str | None,
    evaluator: str | None,
    recipe: str | None,
    no_timing: bool,
    seed: int | None,
    cache: bool,
) -> tuple[Turn, EvaluationSpec, str]:
    """The turn, the evaluation specification, and why kernels are not timed with it, or nothing."""
    import attrs

    from kernelrl_core.plugins.registry import registry

    known = registry()
    made = await _expected_evaluator(recipe, backend, evaluator, overrides, known)
    try:
        from kernelrl_core.recipe.prerequisites import require_prerequisites
        from kernelrl_core.tasks.lookup import find_task

        spec, tasks = _spec(recipe, backend, evaluator, overrides, known)
        require_prerequisites(spec.uses(), spec, known)
        made = made or known.make("evaluators", spec.evaluator)
        why_untimed = _why_untimed(spec, made, overrides, no_timing, known)
        spec = attrs.evolve(spec, settings=attrs.evolve(spec.settings, timing=not why_untimed))
        source = known.make("tasks", tasks) if tasks is not None and not Path(task).is_file() else None
        found = find_task(task, registry=known, source=source)
        return await _evaluate(spec, known, made, found, _read(kernel), seed, cache), spec, why_untimed
    finally:
        if made is not None:
            await made.aclose()


async def _expected_evaluator(
    recipe: str | None, backend: str | None, evaluator: str | None, overrides: tuple[str, ...], registry: Registry
) -> Evaluator | None:
    """The evaluator, if it is known before the specification is read; it starts meanwhile."""
    from kernelrl_core.errors import KernelRLError
    from kernelrl_core.plugins.use import Use

    if recipe or any(key.startswith(("evaluator", "backend")) for key in overrides):
        return None
    try:
        made: Evaluator = registry.make("evaluators", Use(evaluator or _DEFAULT["evaluator"]["use"]))
        await made.expect(backend or _DEFAULT["backend"]["use"])
    except KernelRLError:
        # Whatever reads the specification reports it, with everything else.
        return None
    return made


def _why_untimed(
    spec: EvaluationSpec, evaluator: Evaluator, overrides: tuple[str, ...], no_timing: bool, registry: Registry
) -> str:
    """Why the kernel is not timed, or nothing.

    Raises:
        UsageError: the arguments contradict each other.
    """
    import attrs

    from kernelrl_core.errors import UsageError
    from kernelrl_core.recipe.prerequisites import missing_prerequisites
    from kernelrl_core.types.serialization import to_json

    stated = any(override.partition("=")[0].strip() == "evaluation.timing" for override in overrides)
    if no_timing and stated and spec.settings.timing:
        raise UsageError("--no-timing contradicts evaluation.timing=true", fix="remove one of them")
    if no_timing:
        return "timing is turned off by --no-timing"
    if stated:
        return "" if spec.settings.timing else "timing is turned off by evaluation.timing=false"
    if why := evaluator.why_untimed(spec.backend.use, to_json(spec.backend.options)):
        return why
    timed = attrs.evolve(spec, settings=attrs.evolve(spec.settings, timing=True))
    missing = missing_prerequisites((), timed, registry).keys() - missing_prerequisites((), spec, registry).keys()
    return f"run times require {', '.join(sorted(missing))}" if missing else ""


async def _evaluate(
    spec: EvaluationSpec,
    registry: Registry,
    made: Evaluator,
    task: Task,
    text: str,
    seed: int | None,
    cache: bool,
) -> Turn:
    import hashlib
    import secrets

    from kernelrl_core.environment.candidate_evaluator import CandidateEvaluator
    from kernelrl_core.environment.scoring import lost_turn
    from kernelrl_core.errors import InfrastructureError
    from kernelrl_core.prompts.extraction import extract_file
    from kernelrl_core.storage import cache_directory
    from kernelrl_core.types import Prompt, Reply, SampleId

    secret = secrets.token_bytes(32) if seed is None else hashlib.sha256(f"check {seed}".encode()).digest()
    evaluator = CandidateEvaluator.from_spec(
        spec, registry=registry, secret=secret, cache_dir=cache_directory() if cache else None, evaluator=made
    )
    where, prompt, reply = SampleId(0, 0, 0, 0), Prompt((), ()), Reply(text, (), (), "stop")
    try:
        extraction = extract_file(text, fences=evaluator.backend.facts.fences, backend=spec.backend.use)
        return await evaluator.evaluate(where, task, prompt, reply, extraction)
    except InfrastructureError as error:
        return lost_turn(where, task, prompt, error, reply=reply)
    finally:
        await evaluator.aclose()


def _read(kernel: str) -> str:
    from kernelrl_core.errors import UsageError

    try:
        content = sys.stdin.buffer.read(_MAX_BYTES + 1) if kernel == "-" else _head(Path(kernel))
    except OSError as error:
        raise UsageError(f"{kernel}: kernel file cannot be read: {error.strerror}") from None
    # Binary or oversized input is a bad reply: it gets an outcome, not an exception.
    return content.decode("utf-8", "replace")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES + 1)


def _described(turn: Turn, spec: EvaluationSpec, why_untimed: str) -> dict[str, Any]:
    from kernelrl_core.types import serialization as codec

    evaluation = turn.evaluation
    described = codec.to_json(evaluation) if evaluation is not None else {}
    return {
        "task": turn.task.id,
        "kernel_sha256": turn.candidate.sha256 if turn.candidate is not None else None,
        "backend": spec.backend.use,
        "evaluator": spec.evaluator.use,
        "outcome": turn.outcome.value,
        "verdict": turn.verdict.value,
        "compiled": evaluation is not None and evaluation.compiled,
        "correct": turn.correct,
        "tests_passed": described.get("tests_passed", 0),
        "tests_total": described.get("tests_total", 0),
        "runtime_us": evaluation.runtime.median_us if evaluation is not None and evaluation.runtime else None,
        "baseline_us": evaluation.baseline.median_us if evaluation is not None and evaluation.baseline else None,
        "speedup": turn.speedup,
        "speedup_ci": described.get("speedup_ci") if turn.correct else None,
        "findings": [
            {"rule": finding.rule, "severity": finding.severity.value, "evidence": finding.evidence}
            for finding in turn.findings
        ],
        "message": turn.message,
        "isolation": described.get("isolation"),
        "provenance": described.get("provenance", {}),
        "seconds": {stage: round(seconds, 4) for stage, seconds in described.get("seconds", {}).items()},
        "reasons": {} if turn.speedup is not None else {"speedup": _why_no_speedup(turn, why_untimed)},
    }


def _why_no_speedup(turn: Turn, why_untimed: str) -> str:
    if not turn.correct:
        return f"only a correct kernel is timed; the outcome is {turn.outcome.value}"
    return why_untimed or "a finding ended the evaluation before the kernel was timed"


def _speed(evaluation: Evaluation, speedup: float) -> str:
    text = f"{speedup:.2f}"
    if evaluation.speedup_ci is not None:
        low, high = evaluation.speedup_ci
        text += f" ({low:.2f} to {high:.2f})"
    if evaluation.runtime is not None and evaluation.baseline is not None:
        text += f": {evaluation.runtime.median_us:.1f} us against {evaluation.baseline.median_us:.1f} us"
    return text


def _lines(turn: Turn, why_untimed: str = "") -> list[str]:
    evaluation = turn.evaluation
    outcome = "not executed" if _was_only_built(turn) else turn.outcome.value
    lines = [f"{outcome}; {_FOUND[turn.verdict.value]}  {turn.task.id}"]
    findings = [f"finding   {found.rule} ({found.severity.value}): {found.evidence}" for found in turn.findings]
    shown = {found.evidence for found in turn.findings}
    message = [line for line in turn.message.splitlines() if line not in shown]
    if evaluation is None:
        return [*lines, *findings, *message]
    isolation = evaluation.isolation
    missing = ", ".join("cgroup limits" if layer == "cgroup" else layer for layer in isolation.missing)
    sandbox = f"sandbox   level {isolation.level}/{_MAX_LEVEL}"
    sandbox += f"; no {missing} (see 'kernelrl doctor')" if missing else ""
    if _was_only_built(turn):
        fix = f"fix: use a machine with a GPU for backend {turn.candidate.backend}" if turn.candidate else ""
        return [*lines, *message, *filter(None, [fix]), sandbox, *findings]
    if evaluation.compiled:
        lines.append(f"trials    {evaluation.tests_passed} of {evaluation.tests_total} passed")
    if turn.speedup is not None:
        lines.append(f"speedup   {_speed(evaluation, turn.speedup)}")
    elif turn.correct:
        lines.append(f"speedup   not measured: {_why_no_speedup(turn, why_untimed)}")
    return [*lines, sandbox, *findings, *message]
