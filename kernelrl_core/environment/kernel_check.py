"""The check of kernel files against one task, as `kernelrl check` does it, and again when the files change.

async with open_check(options, registry) as check:
    async for kernel in check.results(since):
        ...
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.environment.candidate_evaluator import CandidateEvaluator
from kernelrl_core.environment.one_kernel import evaluate_kernel, why_untimed, with_timing
from kernelrl_core.errors import KernelRLError, UsageError
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.evaluation_spec import DEFAULT_EVALUATION, EVALUATION_KEYS, EvaluationSpec, spec_from_parts
from kernelrl_core.recipe.merge import Merged, merge_layers, override_layers
from kernelrl_core.recipe.parts import read_parts
from kernelrl_core.recipe.prerequisites import require_prerequisites
from kernelrl_core.recipe.problems import COMMAND_LINE
from kernelrl_core.sources.kernel_files import kernel_files, read_kernel
from kernelrl_core.storage import cache_directory
from kernelrl_core.tasks.lookup import find_task, needs_source
from kernelrl_core.types import Task, Turn
from kernelrl_core.types.serialization import to_json

__all__ = [
    "CheckOptions",
    "CheckedKernel",
    "KernelCheck",
    "component_keys",
    "default_keys",
    "expected_evaluator",
    "open_check",
    "why_no_speedup",
]

_DOMAIN_OF_OTHERS = "others"
_POLL_S = 0.3


@attrs.frozen
class CheckOptions:
    """Task, kernels and settings of a check."""

    task: str
    """Task id, or a file with a task."""
    names: tuple[str, ...]
    """Files and folders with kernels; `-` is standard input."""
    merged: Merged
    """Recipe keys; those of the evaluation count."""
    chosen: tuple[str, str] | None = None
    """Evaluator and backend, if no other key of the recipe has a say; the evaluator then starts while the specification
    is read."""
    timing: bool = True
    """False: no kernel is timed."""
    seed: int | None = None
    """Seed of the inputs; None: random."""
    cache: bool = False
    """Use the evaluation cache. Without a seed, the seed is 0."""
    confine: bool = False
    """Evaluate the task as one of others: its judge is confined."""
    watch: bool = False
    """Evaluate a kernel again when its file changes, without end."""


def default_keys(
    backend: str | None, evaluator: str | None, overrides: Sequence[str], registry: Registry
) -> tuple[Merged, tuple[str, str] | None]:
    """Recipe keys of a check without a recipe, and its evaluator and backend, unless an override may change them.

    Raises:
        RecipeError: lists the overrides that cannot be read.
        PluginFailed: an evaluator could not find out whether it serves.
    """
    if evaluator is None and not any(key.startswith("evaluator") for key in overrides):
        evaluator = registry.evaluator_of_check()
    chosen = (
        evaluator or DEFAULT_EVALUATION["evaluator"]["use"],
        backend or DEFAULT_EVALUATION["backend"]["use"],
    )
    merged = merge_layers(
        [Merged(dict(DEFAULT_EVALUATION)), *override_layers([*component_keys(backend, evaluator), *overrides])]
    )
    is_open = any(key.startswith(("evaluator", "backend")) for key in overrides)
    return merged, None if is_open else chosen


def component_keys(backend: str | None, evaluator: str | None) -> list[str]:
    """The overrides that select a backend and an evaluator."""
    keys = [f"backend.use={backend}"] if backend else []
    return keys + ([f"evaluator.use={evaluator}"] if evaluator else [])


@contextlib.asynccontextmanager
async def open_check(
    options: CheckOptions, registry: Registry, say: Callable[[str], None]
) -> AsyncIterator[KernelCheck]:
    """Start the evaluator and read task and kernels; close the evaluator at the end.

    Args:
        say: prints a line for the user.

    Raises:
        RecipeError: lists all mistakes in the keys of the evaluation.
        UsageError, MissingPrerequisite: the task, a kernel file or a component cannot be used.
        KernelRLError: the evaluator does not start.
    """
    evaluator = await expected_evaluator(*options.chosen, registry) if options.chosen is not None else None
    try:
        spec, tasks, stated_timing = _specification(options, registry)
        if not options.timing and stated_timing:
            raise UsageError("--no-timing contradicts evaluation.timing=true", fix="remove one of them")
        # Run times that a recipe measures are no prerequisite of a check.
        spec = with_timing(spec, stated_timing is True)
        require_prerequisites(spec.uses(), spec, registry)
        evaluator = evaluator or registry.make("evaluators", spec.evaluator)
        await evaluator.start()
        reason = _why_not_timed(options, stated_timing, spec, evaluator, registry)
        source = registry.make("tasks", tasks) if tasks is not None else None
        task = _confined(find_task(options.task, registry=registry, source=source), options)
        kernels = [(name, read_kernel(name)) for name in kernel_files(options.names)]
        yield KernelCheck(options, with_timing(spec, not reason), reason, task, kernels, evaluator, registry, say)
    finally:
        if evaluator is not None:
            await evaluator.aclose()


async def expected_evaluator(evaluator: str, backend: str, registry: Registry) -> Evaluator | None:
    """The evaluator before the specification is read; it starts meanwhile. None if it cannot be used."""
    try:
        made: Evaluator = registry.make("evaluators", Use(evaluator))
        await made.expect(backend)
    except KernelRLError:
        # Whatever reads the specification reports it, with everything else.
        return None
    return made


def _specification(options: CheckOptions, registry: Registry) -> tuple[EvaluationSpec, Use | None, bool | None]:
    """The evaluation specification; the task source of the recipe, if the task needs it; and `evaluation.timing`, if it
    is set on the command line."""
    merged = options.merged
    own = merged.data.get("tasks")
    name = str(own.get("use", "")) if isinstance(own, Mapping) else ""
    with_tasks = own is not None and needs_source(options.task, name, registry)
    parts = read_parts(merged, (*EVALUATION_KEYS, "tasks") if with_tasks else EVALUATION_KEYS, registry)
    spec, origin = spec_from_parts(parts), merged.origins.get(("evaluation", "timing"))
    is_stated = origin is not None and origin.source == COMMAND_LINE
    return spec, parts.get("tasks"), spec.settings.timing if is_stated else None


def _confined(task: Task, options: CheckOptions) -> Task:
    """The task with the domain in which the options have it evaluated."""
    return attrs.evolve(task, domain=_DOMAIN_OF_OTHERS) if options.confine else task


def _why_not_timed(
    options: CheckOptions, stated_timing: bool | None, spec: EvaluationSpec, evaluator: Evaluator, registry: Registry
) -> str:
    """The reason why the kernels are not timed; empty if they are."""
    if not options.timing:
        return "timing is turned off by --no-timing"
    if stated_timing is False:
        return "timing is turned off by evaluation.timing=false"
    return "" if stated_timing else why_untimed(spec, evaluator, registry)


@attrs.frozen
class CheckedKernel:
    """The result of one kernel file."""

    name: str
    """File as given, or `-`."""
    turn: Turn
    """The judged turn: candidate, evaluation, findings and verdict."""
    wall_s: float
    """Seconds from the start of the command, or from the change of the file, to the result."""

    @property
    def cached(self) -> bool:
        """Whether the evaluation is from the evaluation cache."""
        evaluation = self.turn.evaluation
        return evaluation is not None and bool(evaluation.provenance.get("cached"))

    def seconds(self) -> dict[str, float]:
        """Durations in seconds, which add up to `wall_s`: those of the evaluator, `check` for the checkers, and `wait`
        for the rest: reading the task, start of the evaluator, queue."""
        evaluation = self.turn.evaluation
        spent = dict(evaluation.seconds) if evaluation is not None and not self.cached else {}
        spent["check"] = spent.get("check", 0.0) + self.turn.seconds.get("check", 0.0)
        return spent | {"wait": max(0.0, self.wall_s - sum(spent.values()))}

    def row(self, spec: EvaluationSpec, untimed: str) -> dict[str, Any]:
        """The object that `kernelrl check --json` prints.

        Args:
            spec: the specification of the evaluation.
            untimed: the reason why the kernel was not timed; empty if it was.
        """
        turn = self.turn
        evaluation = turn.evaluation
        described = to_json(evaluation) if evaluation is not None else {}
        return {
            "task": turn.task.id,
            "kernel": self.name,
            "kernel_sha256": turn.candidate.sha256 if turn.candidate is not None else None,
            "backend": spec.backend.use,
            "evaluator": spec.evaluator.use,
            "outcome": turn.outcome.value,
            "verdict": turn.verdict.value,
            "compiled": evaluation is not None and evaluation.compiled,
            "correct": turn.correct,
            "tests_passed": described.get("tests_passed", 0),
            "tests_total": described.get("tests_total", 0),
            "cast": described.get("facts", {}).get("cast") or None,
            "dtypes": described.get("facts", {}).get("dtypes"),
            "runtime_us": evaluation.runtime.median_us if evaluation is not None and evaluation.runtime else None,
            "baseline_us": evaluation.baseline.median_us if evaluation is not None and evaluation.baseline else None,
            "speedup": turn.speedup,
            "speedup_ci": described.get("speedup_ci") if turn.correct else None,
            "findings": [to_json(finding) for finding in turn.findings],
            "message": turn.message,
            "isolation": described.get("isolation"),
            "provenance": described.get("provenance", {}),
            "seconds": {phase: round(seconds, 4) for phase, seconds in self.seconds().items()},
            "reasons": {} if turn.speedup is not None else {"speedup": why_no_speedup(turn, untimed)},
        }


def why_no_speedup(turn: Turn, untimed: str) -> str:
    """The reason why a turn has no speedup.

    Args:
        untimed: the reason why the kernel was not timed, where that is known before its evaluation; else empty.
    """
    if not turn.correct:
        return f"only a correct kernel is timed; the outcome is {turn.outcome.value}"
    if turn.evaluation is not None and turn.evaluation.not_timed:
        return turn.evaluation.not_timed
    return untimed or "a finding ended the evaluation before the kernel was timed"


class KernelCheck:
    """The kernels, the task and the started evaluator of a check. Create it with `open_check`."""

    def __init__(
        self,
        options: CheckOptions,
        spec: EvaluationSpec,
        untimed: str,
        task: Task,
        kernels: Sequence[tuple[str, str]],
        evaluator: Evaluator,
        registry: Registry,
        say: Callable[[str], None],
    ) -> None:
        self.spec = spec
        """The specification, with the timing that takes place."""
        self.untimed = untimed
        """The reason why the kernels are not timed; empty if they are."""
        self.several = len(kernels) > 1 or options.watch
        """Whether results of more than one kernel may come."""
        self._options, self._task, self._kernels = options, task, kernels
        self._evaluator, self._registry, self._say = evaluator, registry, say

    async def results(self, since: float) -> AsyncGenerator[CheckedKernel, None]:
        """The results in the order of the kernels; with `watch`, then those of changed kernels without end.

        Args:
            since: value of `time.monotonic` at the start of the command.

        Raises:
            KernelRLError: a plugin failed, or the task is unusable.
        """
        seed = 0 if self._options.cache and self._options.seed is None else self._options.seed
        secret = secrets.token_bytes(32) if seed is None else hashlib.sha256(f"check {seed}".encode()).digest()
        evaluator = CandidateEvaluator.from_spec(
            self.spec,
            registry=self._registry,
            secret=secret,
            cache_dir=cache_directory() if self._options.cache else None,
            evaluator=self._evaluator,
        )
        try:
            async for one in _check_kernels(evaluator, self._task, self._kernels, since):
                yield one
            async for kernels in self._changed():
                async for one in _check_kernels(evaluator, self._task, kernels, time.monotonic()):
                    yield one
        finally:
            await evaluator.aclose()

    async def _changed(self) -> AsyncIterator[list[tuple[str, str]]]:
        """File and text of changed kernels; after a change of the task's file, of all kernels."""
        if not self._options.watch:
            return
        task, names = self._options.task, self._options.names
        own = [task] if Path(task).is_file() else []

        def watched() -> list[str]:
            with contextlib.suppress(UsageError):  # a folder without kernels
                return [*own, *kernel_files(names)]
            return own

        before = _stamps(watched())
        self._say("watching for changes; Ctrl-C ends")
        async for changed in _changes(watched, before):
            try:
                if task in changed:
                    self._task = _confined(find_task(task, registry=self._registry), self._options)
                yield [(name, read_kernel(name)) for name in kernel_files(names) if {name, task} & changed]
            except UsageError as error:  # half written; the next change is evaluated
                self._say(f"kernelrl: {error}")


async def _check_kernels(
    evaluator: CandidateEvaluator, task: Task, kernels: Sequence[tuple[str, str]], since: float
) -> AsyncIterator[CheckedKernel]:
    """Evaluate kernels concurrently, up to the capacity of the evaluator. Yields the results in the order given.

    Args:
        kernels: (file, text) of each kernel.
        since: value of `time.monotonic` from which `CheckedKernel.wall_s` counts.

    Raises:
        KernelRLError: a plugin failed, or the task is unusable.
    """
    tasks = [asyncio.create_task(_checked(evaluator, task, name, text, since)) for name, text in kernels]
    try:
        for one in tasks:
            yield await one
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _checked(evaluator: CandidateEvaluator, task: Task, name: str, text: str, since: float) -> CheckedKernel:
    return CheckedKernel(name, await evaluate_kernel(evaluator, task, text), time.monotonic() - since)


async def _changes(
    list_files: Callable[[], Sequence[str]], before: Mapping[str, tuple[int, int]]
) -> AsyncIterator[set[str]]:
    """Wait for changes of files. Yields the files that are new, or whose size or time of modification changed."""
    while True:
        await asyncio.sleep(_POLL_S)
        now = _stamps(list_files())
        changed = {name for name, stamp in now.items() if before.get(name) != stamp}
        before = now
        if changed:
            yield changed


def _stamps(names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Time of modification in nanoseconds and size in bytes of each file."""
    found = {}
    for name in names:
        try:
            stat = os.stat(name)
        except OSError:  # an editor may replace a file by removing it first
            continue
        found[name] = (stat.st_mtime_ns, stat.st_size)
    return found
