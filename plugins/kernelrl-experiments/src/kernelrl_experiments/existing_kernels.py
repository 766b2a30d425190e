"""Existing kernels, evaluated without a policy: `kernelrl eval RECIPE --kernels PATH`.

| PATH | kernels |
|---|---|
| a file of `kernelrl eval --output` | every turn |
| a run directory | every turn of its last held-out evaluation |
| another folder, or a YAML file | those of the suite (`kernelrl_experiments.suite`) |
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from kernelrl_core.environment.environment import Environment
from kernelrl_core.environment.scoring import lost_turn
from kernelrl_core.errors import InfrastructureError, LookupFailed, StorageError, UsageError, nearest, nearest_path
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.prompts.extraction import extract_file
from kernelrl_core.rollout.episode import Recorder, is_verified
from kernelrl_core.runs.directory import list_runs
from kernelrl_core.runs.results import find_results, last_rows
from kernelrl_core.tasks.selection import listed
from kernelrl_core.types import Episode, Extraction, Group, Prompt, Reply, SampleId, Task, Turn, sha256_text
from kernelrl_core.types.serialization import from_json
from kernelrl_experiments.suite import read_suite

__all__ = ["ExistingKernel", "ExistingKernels", "evaluate_existing", "evaluate_one", "read_existing"]

_SUITE = "suite"
"""Split of the tasks that a suite has beside its kernels."""


@attrs.frozen
class ExistingKernel:
    """A kernel to evaluate."""

    id: SampleId
    """Place in the evaluation; `task_index` is an index of `ExistingKernels.tasks`."""
    text: str
    """Python source or saved reply."""
    extraction: Extraction | None = None
    """Reason why an earlier evaluation found no candidate in a reply; None: the candidate is extracted from `text`."""


@attrs.frozen
class ExistingKernels:
    """Kernels with their tasks."""

    tasks: tuple[Task, ...]
    """Tasks that have a kernel, in the order of the task source."""
    kernels: tuple[ExistingKernel, ...]
    """Ordered by task, sample and turn."""
    notes: tuple[str, ...] = ()
    """A line for each reason why kernels or tasks are excluded."""
    files: Mapping[str, str] = attrs.field(factory=dict)
    """Where the kernels are those of a suite: id of the sample -> file of its kernel."""

    @property
    def splits(self) -> str:
        """Names of the tasks' splits."""
        return ", ".join(dict.fromkeys(task.split for task in self.tasks))

    @property
    def samples(self) -> int:
        """Largest number of samples of a task."""
        samples = {(kernel.id.task_index, kernel.id.attempt) for kernel in self.kernels}
        return max(Counter(index for index, _ in samples).values())

    @property
    def sha256(self) -> str:
        """Hash of the kernels and their tasks."""
        lines = [f"{k.id} {self.tasks[k.id.task_index].sha256} {sha256_text(k.text)}" for k in self.kernels]
        return sha256_text("\n".join(lines))


@attrs.frozen
class _Found:
    """A kernel that is not assigned to a split yet."""

    task: Task
    sample: int
    turn: int
    text: str
    extraction: Extraction | None = None
    file: str = ""


def read_existing(name: str, source: TaskSource, split: str | None, registry: Registry) -> ExistingKernels:
    """The kernels at a path, or of the run with a name below `./runs`.

    Args:
        source: the tasks of the recipe.
        split: only the kernels for tasks of this split. None: those of all splits.

    Raises:
        UsageError: there is no kernel, a file fits no task, or two fit one.
        KernelRLError: the task source failed, or a journal is damaged.
    """
    by_split = {one: listed(source, one) for one in ([split] if split is not None else []) or source.splits()}
    tasks = [task for one in source.splits() for task in listed(source, one)]
    notes: list[str] = []
    path = Path(name)
    if not path.exists() and not (Path("runs") / name).exists():
        close = nearest(name, [run.name for run in list_runs()])
        hint = f"; did you mean run {close!r}?" if close else nearest_path(path)
        raise UsageError(f"--kernels {name}: no such directory, file or run{hint}")
    if path.suffix in (".yaml", ".yml") or (path.is_dir() and not (path / "recipe.yaml").is_file()):
        found = _of_suite(path, source, registry)
        if split is None:
            own = {one.task.id: one.task for one in found if one.task.split == _SUITE}
            by_split[_SUITE] = tuple(own.values())
    else:
        found = list(_of_rows(name, tasks, notes))
    chosen = [task for tasks in by_split.values() for task in tasks]
    return _arranged(name, found, chosen, notes, split)


def _arranged(
    name: str, found: Sequence[_Found], tasks: Sequence[Task], notes: list[str], split: str | None
) -> ExistingKernels:
    by_task: dict[str, list[_Found]] = defaultdict(list)
    for one in found:
        by_task[one.task.id].append(one)
    chosen = [task for task in tasks if task.id in by_task]
    if not chosen:
        where = f"of split {split!r}" if split is not None else "of the recipe"
        raise UsageError(
            f"--kernels {name}: no kernel is for a task {where}",
            fix="choose another recipe or --split",
            see="kernel-files",
        )
    if others := len(by_task) - len(chosen):
        notes.append(f"{others} tasks with kernels are not in split {split!r}")
    if split is not None and (lacking := len(tasks) - len(chosen)):
        notes.append(f"{lacking} of {len(tasks)} tasks of split {split!r} have no kernel and do not count")
    placed = [
        (SampleId(0, index, one.sample, one.turn), one)
        for index, task in enumerate(chosen)
        for one in sorted(by_task[task.id], key=lambda one: (one.sample, one.turn))
    ]
    kernels = tuple(ExistingKernel(where, one.text, one.extraction) for where, one in placed)
    files = {str(where): one.file for where, one in placed if one.file}
    return ExistingKernels(tuple(chosen), kernels, tuple(notes), files)


# --- sources of kernels -------------------------------------------------------------------------------------------


def _of_suite(path: Path, source: TaskSource, registry: Registry) -> list[_Found]:
    pairs, broken = read_suite(path, registry=registry, sources=lambda: [source])
    if broken:
        raise LookupFailed(
            f"--kernels {path}: " + "\n".join(one.message for one in broken),
            fix="choose a recipe with that task, or rename the file to TASK.py (kernelrl tasks list)",
            see="kernel-files",
        )
    samples: Counter[str] = Counter()
    found = []
    for pair in pairs:
        task = pair.task if not pair.task_file else attrs.evolve(pair.task, split=_SUITE)
        number = pair.sample if pair.sample is not None else samples[task.id]
        samples[task.id] += 1
        found.append(_Found(task, number, 0, pair.text, file=pair.file))
    return found


def _of_rows(name: str, tasks: Sequence[Task], notes: list[str]) -> Iterator[_Found]:
    known = {task.id: task for task in tasks}
    unknown: set[str] = set()
    changed: set[str] = set()
    masked = 0
    for row in last_rows(find_results(name)):
        task = known.get(row["task_id"])
        extraction = row["extraction"]
        candidate = extraction["candidate"]
        if task is None:
            unknown.add(row["task_id"])
        elif candidate is None and row["outcome"] == "infra_error":
            masked += 1
        else:
            changed |= {task.id} if task.sha256 != row["task_sha256"] else set()
            text = row["reply"]["text"] if candidate is None else candidate["source"]
            reason = from_json(Extraction, extraction) if candidate is None else None
            yield _Found(task, row["attempt"], row["turn"], text, reason)
    for count, line in (
        (len(unknown), "tasks of the earlier result are not in the recipe, and do not count"),
        (len(changed), "tasks differ from those of the earlier result; the tasks of the recipe apply"),
        (masked, "turns were lost to infrastructure errors before they had a kernel, and do not count"),
    ):
        if count:
            notes.append(f"{count} {line}")


# --- evaluation ---------------------------------------------------------------------------------------------------


async def evaluate_existing(
    existing: ExistingKernels, environment: Environment, recorder: Recorder, finished: Mapping[SampleId, Turn]
) -> list[Group]:
    """Evaluate and score the kernels as the replies of a policy: the groups of all tasks.

    Args:
        finished: turns of an interrupted evaluation, which are not evaluated again.

    Raises:
        StorageError: a turn cannot be recorded.
        KernelRLError: a plugin failed, or a task is unusable.
    """
    turns = {kernel.id: finished[kernel.id] for kernel in existing.kernels if kernel.id in finished}
    waiting = iter([kernel for kernel in existing.kernels if kernel.id not in turns])

    n_workers = 0

    async def work() -> None:
        for kernel in waiting:
            grow()
            turn = await evaluate_one(kernel, existing.tasks[kernel.id.task_index], environment)
            await recorder.record("eval", turn)
            turns[kernel.id] = turn

    def grow() -> None:
        # Twice the capacity, so that the next candidates are checked while the evaluator works. More at once would
        # leave more evaluations unrecorded when the process is killed.
        nonlocal n_workers
        while n_workers < 2 * environment.evaluator.capacity:
            n_workers += 1
            workers.create_task(work())

    async with asyncio.TaskGroup() as workers:
        grow()
    episodes: dict[int, dict[int, list[Turn]]] = defaultdict(lambda: defaultdict(list))
    for where in sorted(turns):
        episodes[where.task_index][where.attempt].append(turns[where])
    return [
        Group(task, tuple(Episode(tuple(episode)) for episode in episodes[index].values()))
        for index, task in enumerate(existing.tasks)
    ]


async def evaluate_one(kernel: ExistingKernel, task: Task, environment: Environment) -> Turn:
    """The turn of one kernel as the reply of a policy; masked if it was lost to an infrastructure error.

    Raises:
        StorageError: a file of the evaluation cannot be written.
        KernelRLError: a plugin failed, or the task is unusable.
    """
    prompt, reply = Prompt((), ()), Reply(kernel.text, (), (), "stop")
    extraction = kernel.extraction
    if extraction is None:
        backend, fences = environment.recipe.backend.use, environment.evaluator.backend.facts.fences
        extraction = await asyncio.to_thread(extract_file, kernel.text, fences=fences, backend=backend)
    try:
        turn = await environment.evaluate_extraction(kernel.id, task, prompt, reply, extraction, seconds={})
        return await environment.verify(turn) if is_verified(turn, environment.recipe, "eval") else turn
    except StorageError:
        raise
    except InfrastructureError as error:
        return lost_turn(kernel.id, task, prompt, error, reply=reply)
