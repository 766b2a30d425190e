from __future__ import annotations

from pathlib import Path
from typing import Any

from broken_components import Broken
from kernelrl_core.api.loggers import Logger
from kernelrl_testing.waiting import takes


class Lines(Logger):
    """Keeps the index of each step in a file."""

    def start(self, run_dir: Path, recipe: Any, first_step: int) -> int:
        self.path = run_dir / "steps"
        steps = self.path.read_text().split() if self.path.exists() else []
        return max(map(int, steps), default=-1)

    def step(self, metrics: Any) -> None:
        with self.path.open("a") as stream:
            stream.write(f"{metrics['step']}\n")


class Fails(Lines):
    def evaluation(self, results: Any) -> None:
        raise RuntimeError("planted")


class Changes(Lines):
    def step(self, metrics: Any) -> None:
        super().step(metrics)
        metrics.pop("reward/mean")


class Blocks(Lines):
    def step(self, metrics: Any) -> None:
        takes(0.03)
        super().step(metrics)


class Ahead(Lines):
    """Claims steps that it does not hold."""

    def start(self, run_dir: Path, recipe: Any, first_step: int) -> int:
        return super().start(run_dir, recipe, first_step) + 5


class Locks(Lines):
    """A run that was killed keeps its lock."""

    def start(self, run_dir: Path, recipe: Any, first_step: int) -> int:
        self.lock = run_dir / "lock"
        self.lock.touch(exist_ok=False)
        return super().start(run_dir, recipe, first_step)

    def finish(self, state: str) -> None:
        self.lock.unlink()


EVENTS = "takes_every_event"
KILLED = "a_run_that_was_killed_continues"
QUICK = "events_do_not_block"
BROKEN = [
    Broken("loggers", "loggers.Lines", ()),
    Broken("loggers", "loggers.Fails", [EVENTS, QUICK]),
    Broken("loggers", "loggers.Changes", [EVENTS]),
    Broken("loggers", "loggers.Blocks", [QUICK], attributes={"max_ms": 20.0}),
    Broken("loggers", "loggers.Ahead", [EVENTS, KILLED]),
    Broken("loggers", "loggers.Locks", [KILLED]),
]
