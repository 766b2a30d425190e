"""Logger `tensorboard`: metrics, distributions and hyperparameters of a run as event files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from kernelrl_core.api.loggers import Logger
from kernelrl_plugin_tensorboard.config import TensorboardConfig
from kernelrl_plugin_tensorboard.event_files import (
    EventFile,
    histogram,
    hyperparameters,
    last_step,
    layout,
    scalars,
)
from kernelrl_plugin_tensorboard.tags import CHARTS, DISTRIBUTIONS, STEP, tagged

__all__ = ["TensorboardLogger"]


class TensorboardLogger(Logger):
    """Writes event files to the folder `tensorboard` of the run directory."""

    def __init__(self, options: TensorboardConfig) -> None:
        self._every = options.histograms_every
        self._waiting: list[Event] = []
        self._credits: Sequence[Mapping[str, Any]] = ()

    def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int) -> int:
        directory = run_dir / "tensorboard"
        held = last_step(directory, STEP)
        self._file = EventFile(directory)
        if held < 0:
            settings = hyperparameters(dict(_flat(recipe)), run_dir.name)
            self._file.append([_event(0, [layout(CHARTS), *settings])])
        return held

    def credits(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._credits = rows

    def evaluation(self, results: Mapping[str, Any]) -> None:
        # Written together with the step that follows, so that a crash cannot separate them.
        values = {name: value for name, value in results.items() if name != "step"}
        self._waiting.append(_event(results["step"], scalars(tagged(values))))

    def step(self, metrics: Mapping[str, Any]) -> None:
        values = scalars(tagged(metrics))
        if self._every and metrics["step"] % self._every == 0:
            values += self._distributions()
        self._waiting.append(_event(metrics["step"], values))
        self._write()

    def finish(self, state: str) -> None:
        self._write()
        self._file.close()

    def _write(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._file.append(waiting)

    def _distributions(self) -> Iterator[Summary.Value]:
        for key, tag in DISTRIBUTIONS.items():
            values = [row[key] for row in self._credits if row[key] is not None]
            if values:
                yield histogram(tag, values)


def _event(step: int, values: Sequence[Summary.Value]) -> Event:
    return Event(wall_time=time.time(), step=step, summary=Summary(value=values))


def _flat(recipe: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, bool | float | str]]:
    """The values of a recipe that are no lists, under their dotted keys."""
    for key, value in recipe.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, bool | int | float | str):
            yield prefix + key, value
