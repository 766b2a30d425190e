"""Which tasks each step works on, and how they are judged meanwhile, as a run learns.

Without a curriculum this is the schedule of `batches`. With one it also depends on what was measured: a stage ends when
a rate is high enough, and tasks are drawn by how likely their next group has a signal. All that is remembered goes into
the loop state of each checkpoint, so a resumed run draws the same tasks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.errors import UsageError
from kernelrl_core.recipe.schema import CurriculumStage, Difficulty, NonNegativeInt, Recipe
from kernelrl_core.tasks.schedule import schedule
from kernelrl_core.types import Group, Task, TaskSettings
from kernelrl_core.types.seeds import derived_seed

__all__ = ["TaskSchedule", "signal_chance"]


class TaskSchedule:
    """The tasks of every step of a run.

    Args:
        tasks: those that may be trained on, in the order of their source.
        recipe: of the run.

    Raises:
        UsageError: no tasks, a stage without tasks, or contradictions in the batches.
    """

    def __init__(self, tasks: Sequence[Task], recipe: Recipe) -> None:
        self._recipe = recipe
        self._stages = recipe.curriculum.stages if recipe.curriculum is not None else ()
        self._difficulty = recipe.curriculum.difficulty if recipe.curriculum is not None else None
        self._plain = schedule([task.id for task in tasks], recipe.train, recipe.seed)
        self._pools = [_pool(tasks, stage, number) for number, stage in enumerate(self._stages, 1)] or [list(tasks)]
        self._stage, self._began = 0, 0
        self._window: list[float] = []
        self._history: dict[str, list[tuple[int, int]]] = {}

    @property
    def n_steps(self) -> int:
        return len(self._plain)

    @property
    def n_tasks(self) -> int:
        """Tasks of the stage."""
        return len(self._pools[self._stage])

    def batch(self, step: int) -> list[Task]:
        """The tasks of the next step, as its stage wants them judged and paid."""
        pool, places = self._pools[self._stage], len(self._plain[step])
        if self._difficulty is not None:
            return self._drawn(pool, step, places, self._difficulty)
        if not self._stages:
            return [pool[index] for index in self._plain[step]]
        train = attrs.evolve(self._recipe.train, steps=NonNegativeInt(step - self._began + 1), epochs=None)
        seed = derived_seed(self._recipe.seed, "stage", self._stage)
        return [pool[index] for index in schedule([task.id for task in pool], train, seed)[-1][:places]]

    def learn(self, step: int, groups: Sequence[Group], row: Mapping[str, Any]) -> dict[str, float]:
        """Take in what a step measured; the answer joins its row of metrics."""
        if self._recipe.curriculum is None:
            return {}
        found: dict[str, float] = {"curriculum/stage": self._stage, "curriculum/tasks": self.n_tasks}
        if self._difficulty is not None:
            self._remember(groups, self._difficulty)
        if self._stage + 1 < len(self._stages) and self._is_over(step, self._stages[self._stage], row):
            self._stage, self._began, self._window = self._stage + 1, step + 1, []
        return found

    def stage_line(self, step: int) -> str | None:
        """What there is to say before a step: that a stage begins with it."""
        if not self._stages or step != self._began:
            return None
        levels = self._stages[self._stage].levels
        of = f" of {'level' if len(levels) == 1 else 'levels'} {', '.join(map(str, levels))}" if levels else ""
        return f"curriculum: stage {self._stage + 1} of {len(self._stages)}, {self.n_tasks} tasks{of}"

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the course; nothing where nothing was learnt."""
        if self._recipe.curriculum is None:
            return {}
        return {
            "curriculum": {
                "stage": self._stage,
                "began": self._began,
                "window": list(self._window),
                "history": {name: [list(counts) for counts in rows] for name, rows in sorted(self._history.items())},
            }
        }

    def restore(self, loop: Mapping[str, Any]) -> None:
        """Go on from the loop state of a checkpoint."""
        kept = loop.get("curriculum")
        if self._recipe.curriculum is None or kept is None:
            return
        self._stage, self._began, self._window = int(kept["stage"]), int(kept["began"]), list(kept["window"])
        self._history = {name: [(right, n) for right, n in rows] for name, rows in kept["history"].items()}

    def _is_over(self, step: int, stage: CurriculumStage, row: Mapping[str, Any]) -> bool:
        if stage.max_steps is not None and step - self._began + 1 >= stage.max_steps:
            return True
        if stage.until is None:
            return False
        if stage.until.metric in row:
            self._window = [*self._window, float(row[stage.until.metric])][-stage.until.over :]
        return len(self._window) == stage.until.over and statistics.fmean(self._window) >= stage.until.above

    def _remember(self, groups: Sequence[Group], settings: Difficulty) -> None:
        for group in groups:
            valid = [e for e in group.episodes if e.turns and not any(turn.masked for turn in e.turns)]
            if valid:
                right = sum(any(turn.correct for turn in episode.turns) for episode in valid)
                rows = [*self._history.get(group.task.id, []), (right, len(valid))]
                self._history[group.task.id] = rows[-settings.groups :]

    def _drawn(self, pool: Sequence[Task], step: int, places: int, settings: Difficulty) -> list[Task]:
        """A weighted draw without replacement, as a race of exponential clocks whose rates are the weights."""

        def finish(task: Task) -> float:
            # Half a unit more keeps the logarithm finite; the drawn integers go from 0 to 2**63 - 1.
            uniform = (derived_seed(self._recipe.seed, "difficulty", step, task.id) + 0.5) / 2**63
            return -math.log(uniform) / self._weight(task, settings)

        order = sorted(pool, key=lambda task: (finish(task), task.id))
        return [order[place % len(order)] for place in range(places)]

    def _weight(self, task: Task, settings: Difficulty) -> float:
        rows = self._history.get(task.id, [])
        right, n = sum(row[0] for row in rows), sum(row[1] for row in rows)
        solved = settings.solved == "keep"
        chance = signal_chance(right, n, self._recipe.train.group_size, solved_teaches=solved)
        return float(chance**settings.sharpness)


def signal_chance(right: int, n: int, group_size: int, *, solved_teaches: bool = False) -> float:
    """Chance that a task's next group is neither all wrong nor all right, after `right` of `n` attempts were right.

    With a uniform prior the task's rate p is Beta(a, b) with a = right + 1 and b = n - right + 1, and the chance is
    1 - E[(1 - p)^G] - E[p^G], where E[p^G] = prod over i < G of (a + i) / (a + b + i). It is never 0.

    Args:
        solved_teaches: groups that are all right have a signal, too, since their speedups differ.
    """
    a, b = right + 1, n - right + 1
    all_wrong = math.prod((b + i) / (a + b + i) for i in range(group_size))
    all_right = math.prod((a + i) / (a + b + i) for i in range(group_size))
    return 1.0 - all_wrong - (0.0 if solved_teaches else all_right)


def _pool(tasks: Sequence[Task], stage: CurriculumStage, number: int) -> list[Task]:
    levels = stage.levels
    kept = [task for task in tasks if levels is None or task.level in levels]
    if not kept:
        known = ", ".join(map(str, sorted({task.level for task in tasks if task.level is not None}))) or "none"
        raise UsageError(
            f"curriculum.stages: stage {number} has no tasks of its levels {list(levels or ())}; known: {known}",
            fix="name levels that tasks.levels lets in, or leave levels out",
        )
    settings = TaskSettings(stage.atol, stage.rtol, stage.trials, dict(stage.weights))
    return [attrs.evolve(task, settings=settings) for task in kept]
