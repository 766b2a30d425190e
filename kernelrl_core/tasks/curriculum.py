"""The tasks of each step, with the evaluation settings of their curriculum stage.

Without a curriculum, the tasks are those of `schedule`. With one, they also depend on measurements: a stage ends when a
metric is high enough, and tasks are drawn with weights given by the chance that their next group has a training signal.
The state is part of each checkpoint, so a resumed run draws the same tasks.
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
        tasks: training tasks in the order of their source.
        recipe: recipe of the run.

    Raises:
        UsageError: there are no tasks, a curriculum stage has none, or `train.steps` and `train.epochs` are both set.
    """

    def __init__(self, tasks: Sequence[Task], recipe: Recipe) -> None:
        self.tasks = tuple(tasks)
        """Training tasks, in the order of their source."""
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
        """Number of tasks of the current curriculum stage."""
        return len(self._pools[self._stage])

    def batch(self, step: int) -> list[Task]:
        """The tasks of a step with the tolerances, trials and reward weights of the curriculum stage."""
        pool, size = self._pools[self._stage], len(self._plain[step])
        if self._difficulty is not None:
            return self._draw(pool, step, size, self._difficulty)
        if not self._stages:
            return [pool[index] for index in self._plain[step]]
        train = attrs.evolve(self._recipe.train, steps=NonNegativeInt(step - self._began + 1), epochs=None)
        seed = derived_seed(self._recipe.seed, "stage", self._stage)
        return [pool[index] for index in schedule([task.id for task in pool], train, seed)[-1][:size]]

    def spare(self, step: int) -> list[Task]:
        """The tasks that replace uniform groups of a step (`train.refill`), in the order in which they are used: all
        tasks that are not in its batch, in a random order that seed and step determine."""
        in_batch = {task.id for task in self.batch(step)}
        others = [task for task in self._pools[self._stage] if task.id not in in_batch]
        return sorted(others, key=lambda task: derived_seed(self._recipe.seed, "refill", step, task.id))

    def learn(self, step: int, groups: Sequence[Group], row: Mapping[str, Any]) -> dict[str, float]:
        """Update the curriculum with the results of a step; returns additional values for its metrics row."""
        if self._recipe.curriculum is None:
            return {}
        found: dict[str, float] = {"curriculum/stage": self._stage, "curriculum/tasks": self.n_tasks}
        if self._difficulty is not None:
            self._remember(groups, self._difficulty)
        if self._stage + 1 < len(self._stages) and self._is_over(step, self._stages[self._stage], row):
            self._stage, self._began, self._window = self._stage + 1, step + 1, []
        return found

    def stage_line(self, step: int) -> str | None:
        """A line for the user if a curriculum stage starts with this step, else None."""
        if not self._stages or step != self._began:
            return None
        levels = self._stages[self._stage].levels
        of = f" of {'level' if len(levels) == 1 else 'levels'} {', '.join(map(str, levels))}" if levels else ""
        return f"curriculum: stage {self._stage + 1} of {len(self._stages)}, {self.n_tasks} tasks{of}"

    def state(self) -> dict[str, Any]:
        """State of the curriculum for a checkpoint; empty without a curriculum."""
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
        """Restore the state from the loop state of a checkpoint."""
        state = loop.get("curriculum")
        if self._recipe.curriculum is None or state is None:
            return
        self._stage, self._began, self._window = int(state["stage"]), int(state["began"]), list(state["window"])
        self._history = {name: [(solved, n) for solved, n in rows] for name, rows in state["history"].items()}

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
                solved = sum(any(turn.correct for turn in episode.turns) for episode in valid)
                rows = [*self._history.get(group.task.id, []), (solved, len(valid))]
                self._history[group.task.id] = rows[-settings.groups :]

    def _draw(self, pool: Sequence[Task], step: int, size: int, settings: Difficulty) -> list[Task]:
        """Draw tasks by weight without replacement: sort by exponential random variables whose rates are the weights.

        Source: Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006.
        """

        def finish(task: Task) -> float:
            # The seeds are integers from 0 to 2**63 - 1; adding 0.5 keeps the logarithm finite.
            uniform = (derived_seed(self._recipe.seed, "difficulty", step, task.id) + 0.5) / 2**63
            return -math.log(uniform) / self._weight(task, settings)

        order = sorted(pool, key=lambda task: (finish(task), task.id))
        return [order[position % len(order)] for position in range(size)]

    def _weight(self, task: Task, settings: Difficulty) -> float:
        rows = self._history.get(task.id, [])
        solved, n = sum(row[0] for row in rows), sum(row[1] for row in rows)
        keep_solved = settings.solved == "keep"
        chance = signal_chance(solved, n, self._recipe.train.group_size, solved_teaches=keep_solved)
        return float(chance**settings.sharpness)


def signal_chance(right: int, n: int, group_size: int, *, solved_teaches: bool = False) -> float:
    """Probability that the next group of a task has both solved and unsolved episodes.

    With a uniform prior, the solve rate p after `right` of `n` solved episodes is Beta(a, b) distributed with
    a = right + 1 and b = n - right + 1. For groups of G episodes the result is 1 - E[(1 - p)^G] - E[p^G], where
    E[p^G] = prod over i < G of (a + i) / (a + b + i), and with b + i as numerator for E[(1 - p)^G]. It is positive for
    G above 1 and 0, up to rounding, for G = 1.

    Source: moments of the beta distribution; the weighting is not from a paper.

    Args:
        right: number of solved episodes, at most n.
        n: number of episodes so far.
        group_size: G.
        solved_teaches: count groups of solved episodes only as a signal, too, since their speedups differ; the result
            is then 1 - E[(1 - p)^G].
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
            fix="use levels that tasks.levels includes, or remove levels from the stage",
            see="split",
        )
    settings = TaskSettings(stage.atol, stage.rtol, stage.trials, dict(stage.weights))
    return [attrs.evolve(task, settings=settings) for task in kept]
