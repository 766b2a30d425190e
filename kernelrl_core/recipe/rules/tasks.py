"""Rules about tasks: their splits, levels and demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from kernelrl_core.errors import InfrastructureError, KernelRLError, MissingPrerequisite, nearest_path
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.plugins.boundary import plugin_boundary, returned
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.prompts.sft_file import read_conversations
from kernelrl_core.recipe.rules.contradiction import Contradiction
from kernelrl_core.recipe.schema import CurriculumSettings, DemonstrationSettings, EvalSettings, TrainSettings
from kernelrl_core.tasks.selection import eval_tasks, training_tasks
from kernelrl_core.types import Task

__all__ = ["demonstration_file", "splits_and_levels", "warm_start"]

T = TypeVar("T")


def splits_and_levels(
    tasks: Use,
    train: TrainSettings,
    eval: EvalSettings,  # noqa: A002
    curriculum: CurriculumSettings | None,
    registry: Registry,
) -> Iterator[Contradiction]:
    """Splits without tasks, and levels that no task has."""
    if tasks.options.remote():
        return
    found: list[Contradiction] = []

    def attempt(call: Callable[[], T], place: tuple[str, ...]) -> T | None:
        try:
            return call()
        except (InfrastructureError, MissingPrerequisite):
            return None  # reported when the tasks are read; they may be on another machine
        except KernelRLError as error:
            found.append(Contradiction(place, error.message, error.fix))
            return None

    def opened() -> tuple[TaskSource, Sequence[str]]:
        source = registry.make("tasks", tasks)
        label = f"task source {tasks.use!r}"
        with plugin_boundary(label, "splits"):
            return source, returned(source.splits(), Sequence, label, "splits")  # type: ignore[type-abstract]

    source, splits = attempt(opened, ("tasks",)) or (None, ())
    if source is not None:
        held_out, training = eval.split, train.split
        if eval.every or eval.at_start or eval.at_end or held_out != EvalSettings().split:
            named = held_out not in splits and held_out != EvalSettings().split
            attempt(lambda: eval_tasks(source, eval), ("eval", "split") if named else ("tasks",))
        place = ("train", "split") if training not in splits and training != TrainSettings().split else ("tasks",)
        selected = attempt(lambda: training_tasks(source, train, held_out), place)
        if selected is not None and not selected[0]:
            found.append(Contradiction(("train", "split"), f"split {training!r} has no tasks"))
        elif selected is not None:
            found += _levels(train, curriculum, selected[0])
    # An error in listing one split may be an error in listing the other.
    yield from dict.fromkeys(found)


def _levels(
    train: TrainSettings, curriculum: CurriculumSettings | None, tasks: Sequence[Task]
) -> Iterator[Contradiction]:
    stages = curriculum.stages if curriculum is not None else ()
    levels = {task.level for task in tasks if task.level is not None}
    known = ", ".join(map(str, sorted(levels))) or "none"
    for index, stage in enumerate(stages):
        if stage.levels is not None and not levels.intersection(stage.levels):
            message = f"no task of split {train.split!r} has one of these levels"
            yield Contradiction(("curriculum", "stages", str(index), "levels"), message, f"known levels: {known}")


def warm_start(
    tasks: Use,
    backend: Use,
    policy: Use,
    demonstrations: DemonstrationSettings,
    registry: Registry,
) -> Iterator[Contradiction]:
    """A warm start without demonstrations, because the task source has none for the backend."""
    needed = policy.options.capabilities().warm_start and demonstrations.file is None
    if not needed or tasks.options.remote():
        return
    language = backend.use.rpartition(":")[2]
    try:
        if demonstrations.bundled and _has_demonstration(registry.make("tasks", tasks), language):
            return
    except Exception:  # plugin code; reported by `splits_and_levels`
        return
    message = f"the tasks have no demonstration for backend {language!r}, which the warm start of the policy needs"
    hint = "set policy.warm_start=null if the policy has this option, or demonstrations.file"
    yield Contradiction(("backend",), message, hint)


def _has_demonstration(source: TaskSource, backend: str) -> bool:
    tasks = [task for split in source.splits() for task in source.tasks(split)]
    return any(one.backend == backend for task in tasks for one in source.demonstrations(task))


def demonstration_file(demonstrations: DemonstrationSettings) -> Iterator[Contradiction]:
    """A file of demonstrations that is missing or invalid."""
    file = demonstrations.file
    hint = "create it with 'kernelrl distill RUN -o FILE', or set demonstrations.file to null"
    if file is not None and not file.is_file():
        yield Contradiction(("demonstrations", "file"), f"no such file: {file}{nearest_path(file)}", hint)
        return
    try:
        if file is not None:
            read_conversations(file)
    except KernelRLError as error:
        message = error.message.removeprefix("demonstrations.file: ")
        yield Contradiction(("demonstrations", "file"), message, error.fix or hint)
