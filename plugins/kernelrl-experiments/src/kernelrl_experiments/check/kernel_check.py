"""The check of kernel files against a task, or of a suite, as `kernelrl check` does it, and again when files change.

async with open_check(options, registry) as check:
    async for kernel in check.results(since):
        ...
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.environment.candidate_evaluator import CandidateEvaluator
from kernelrl_core.environment.checked_kernels import CheckedKernel
from kernelrl_core.environment.one_kernel import (
    check_secret,
    evaluate_kernel,
    find_backends,
    why_untimed,
    with_timing,
)
from kernelrl_core.environment.scoring import score
from kernelrl_core.errors import KernelRLError, MissingPrerequisite, UsageError
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.evaluation_spec import EvaluationSpec, spec_from_parts
from kernelrl_core.recipe.merge import merge_layers, override_layers
from kernelrl_core.recipe.parts import read_parts
from kernelrl_core.recipe.prerequisites import pending_preparations, require_prerequisites
from kernelrl_core.sources.kernel_files import KernelReader, kernel_files
from kernelrl_core.sources.packages import imported_texts, package_files
from kernelrl_core.sources.plain_functions import EXTENSION_SUFFIXES
from kernelrl_core.storage import cache_directory
from kernelrl_core.tasks.lookup import find_task, plain_sources
from kernelrl_core.types import DOMAIN_OF_OTHERS, Score, Task, Turn
from kernelrl_experiments.check.options import CheckOptions, CheckParts, check_parts, is_on_command_line
from kernelrl_experiments.check.results import CheckResult, KernelJob
from kernelrl_experiments.suite import read_suite

__all__ = ["KernelCheck", "expected_evaluator", "open_check"]

_POLL_S = 0.3


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
        parts = check_parts(options, registry)
        stated_timing = parts.stated_timing
        if not options.timing and stated_timing:
            raise UsageError("--no-timing contradicts evaluation.timing=true", fix="remove one of them")
        # Run times that a recipe measures are no prerequisite of a check.
        spec = with_timing(parts.spec, stated_timing is True)
        parts = attrs.evolve(parts, spec=spec)
        if not options.suite:
            require_prerequisites(spec.uses(), spec, registry)
        evaluator = evaluator or registry.make("evaluators", spec.evaluator)
        await evaluator.start()
        source = registry.make("tasks", parts.tasks) if parts.tasks is not None else None
        check = KernelCheck(options, parts, source, evaluator, registry, say)
        try:
            yield check
        finally:
            await check.aclose()
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


def _confined(task: Task, options: CheckOptions) -> Task:
    """The task with the domain in which the options have it evaluated."""
    return attrs.evolve(task, domain=DOMAIN_OF_OTHERS) if options.confine else task


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
class _Setting:
    """How the kernels of a backend are evaluated."""

    spec: EvaluationSpec
    untimed: str
    evaluator: CandidateEvaluator


class KernelCheck:
    """The kernels, their tasks and the started evaluator of a check. Create it with `open_check`.

    Args:
        parts: of the recipe; its backend is that of kernels whose backend is not known otherwise.
    """

    def __init__(
        self,
        options: CheckOptions,
        parts: CheckParts,
        source: TaskSource | None,
        evaluator: Evaluator,
        registry: Registry,
        say: Callable[[str], None],
    ) -> None:
        self._options, self._parts = options, parts
        self._spec, self._stated_timing = parts.spec, parts.stated_timing
        self._source, self._evaluator, self._registry, self._say = source, evaluator, registry, say
        seed = 0 if options.cache and options.seed is None else options.seed
        self._secret = secrets.token_bytes(32) if seed is None else check_secret(seed)
        self._settings: dict[str, _Setting] = {}
        self._reader = KernelReader()
        self._jobs = self._read()
        self.several = len(self._jobs) > 1 or options.watch or bool(options.suite)
        """Whether results of more than one kernel may come."""
        if not options.suite:
            for backend in dict.fromkeys(job.backend for job in self._jobs):
                self._setting(backend)

    async def results(self, since: float) -> AsyncGenerator[CheckResult, None]:
        """The results in the order of the kernels, those of a suite by backend; with `watch`, in the order in which the
        evaluations end, then those of changed kernels without end.

        Args:
            since: value of `time.monotonic` at the start of the command.

        Raises:
            KernelRLError: a plugin failed; or, without a suite, the task is unusable.
        """
        found = self._watched(since) if self._options.watch else self._evaluated(since)
        async with contextlib.aclosing(found):
            async for one in found:
                yield one

    async def aclose(self) -> None:
        """Close what evaluates the kernels, and the evaluator."""
        for setting in self._settings.values():
            await setting.evaluator.aclose()
        await self._evaluator.aclose()

    async def _evaluated(self, since: float) -> AsyncGenerator[CheckResult, None]:
        for backend in dict.fromkeys(job.backend for job in self._jobs):
            # One backend after the other: each has the whole capacity of the evaluator.
            group = [asyncio.create_task(self._result(job, since)) for job in self._jobs if job.backend == backend]
            try:
                for one in group:
                    yield await one
            finally:
                await _cancelled(group)

    async def _watched(self, since: float) -> AsyncGenerator[CheckResult, None]:
        running = {job.place: asyncio.create_task(self._result(job, since)) for job in self._jobs}
        known = {job.place: job for job in self._jobs}
        stamps = _stamps(self._files())
        announced = False
        try:
            while True:
                if running:
                    await asyncio.wait(running.values(), timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
                else:
                    if not announced:
                        self._say("watching for changes; Ctrl-C ends")
                        announced = True
                    await asyncio.sleep(_POLL_S)
                now = _stamps(self._files())
                if now != stamps:
                    stamps = now
                    for job in self._changed(known):
                        known[job.place] = job
                        if (stale := running.pop(job.place, None)) is not None:
                            await _cancelled([stale])
                        running[job.place] = asyncio.create_task(self._result(job, time.monotonic()))
                for place in [place for place, one in running.items() if one.done()]:
                    yield await running.pop(place)
        finally:
            await _cancelled(running.values())

    def _changed(self, known: Mapping[tuple[str, str], KernelJob]) -> list[KernelJob]:
        """The jobs that differ from the known ones; none while a file is half written."""
        try:
            package = self._reader.package
            self._jobs = self._read()
            all_changed = package != self._reader.package
            return [job for job in self._jobs if all_changed or known.get(job.place) != job]
        except UsageError as error:
            self._say(f"kernelrl: {error}")
            return []

    def _files(self) -> list[str]:
        """The files of tasks and kernels, and the directories in which others may appear."""
        options = self._options
        roots = [options.suite] if options.suite else [options.task, *options.names]
        inside = [path for root in roots if Path(root).is_dir() for path in Path(root).rglob("*")]
        folders = [str(path) for path in inside if path.is_dir()]
        package = [str(path) for path in package_files(Path(options.path))] if options.path else []
        return [*roots, *folders, *package, *(file for job in self._jobs for file in job.files)]

    def _read(self) -> list[KernelJob]:
        """Read tasks and kernels.

        Raises:
            UsageError: one of them cannot be read; the message has a line for each.
        """
        options = self._options
        self._reader = KernelReader.opened(options.function, options.path)
        if options.suite:
            return self._read_suite(Path(options.suite))
        task = _confined(find_task(options.task, registry=self._registry, source=self._source), options)
        jobs = []
        for name in kernel_files(options.names):
            text = self._reader.read(name)
            # A recipe states the backend of Python sources.
            is_open = Path(name).suffix in EXTENSION_SUFFIXES or not options.merged.sources
            backend = self._backend_of(text) if is_open else self._spec.backend.use
            jobs.append(KernelJob(name, task, text, backend, (name, options.task)))
        return jobs

    def _read_suite(self, path: Path) -> list[KernelJob]:
        source, registry = self._source, self._registry
        pairs, broken = read_suite(
            path,
            registry=registry,
            sources=lambda: [source] if source is not None else plain_sources(registry),
            reader=self._reader,
        )
        if broken:
            raise UsageError("\n".join(one.message for one in broken), see="kernel-files")
        return [
            KernelJob(
                name=pair.file,
                task=_confined(pair.task, self._options),
                text=pair.text,
                backend=self._backend_of(pair.text, pair.backend),
                files=pair.files,
            )
            for pair in pairs
        ]

    def _backend_of(self, text: str, stated: str = "") -> str:
        """The backend of a kernel: that of the command line, the one that its suite states, or one that finds kernels
        in its text, the default first; else the default."""
        default = self._spec.backend.use
        if is_on_command_line(self._options.merged, "backend", "use"):
            return default
        if stated:
            return stated
        texts = "\n".join([text, *imported_texts(text, self._reader.package)])
        found = find_backends(texts, self._registry)
        return default if default in found else next(iter(found), default)

    def _setting(self, backend: str) -> _Setting:
        """How the kernels of a backend are evaluated.

        Raises:
            RecipeError: the backend does not exist.
            MissingPrerequisite: this machine lacks a prerequisite of it.
        """
        if backend not in self._settings:
            options, spec = self._options, self._spec
            if backend != spec.backend.use:
                merged = merge_layers([options.merged, *override_layers([f"backend.use={backend}"])])
                spec = with_timing(spec_from_parts(read_parts(merged, self._parts.keys, self._registry)), False)
            untimed = _why_not_timed(options, self._stated_timing, spec, self._evaluator, self._registry)
            spec = with_timing(spec, not untimed)
            evaluator = CandidateEvaluator.from_spec(
                spec,
                registry=self._registry,
                secret=self._secret,
                cache_dir=cache_directory() if options.cache else None,
                evaluator=self._evaluator,
            )
            self._settings[backend] = _Setting(spec, untimed, evaluator)
            for line in pending_preparations(spec):
                self._say(f"{backend}: {line}")
        return self._settings[backend]

    async def _result(self, job: KernelJob, since: float) -> CheckResult:
        """Evaluate a kernel.

        Raises:
            KernelRLError: a plugin failed; or, without a suite, the task is unusable.
        """
        spec, untimed = self._spec, ""
        try:
            setting = self._setting(job.backend)
            spec, untimed = setting.spec, setting.untimed
            package = self._reader.package
            turn = await evaluate_kernel(setting.evaluator, job.task, job.text, name=job.name, package=package)
        except (UsageError, MissingPrerequisite) as error:
            if not self._options.suite:
                raise
            return CheckResult(job, spec, untimed, None, error)
        checked = CheckedKernel(job.name, turn, time.monotonic() - since, self._score(turn))
        return CheckResult(job, spec, untimed, checked)

    def _score(self, turn: Turn) -> Score | None:
        parts = self._parts
        return score(turn, parts.rewards, parts.verdicts) if parts.rewards and not turn.masked else None


async def _cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their ends."""
    waiting = list(tasks)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


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
