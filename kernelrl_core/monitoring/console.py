"""Console output of a run, on stderr: one line per step, and on a terminal a live progress bar."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kernelrl_core.monitoring.events import Event, PhaseStarted, StepFinished, TurnFinished
from kernelrl_core.monitoring.timeline import KINDS, shares_text
from kernelrl_core.types import Turn

__all__ = ["Console", "step_line"]

_log = logging.getLogger(__name__)


class Console:
    """Prints and logs the progress of a run."""

    def __init__(self) -> None:
        self._console = RichConsole(file=sys.stderr, highlight=False, emoji=False, soft_wrap=True)
        self._progress: Progress | None = None
        self._samples = self._correct = 0

    def say(self, text: str) -> None:
        """Print and log a line."""
        _log.info("%s", text)
        self.show(text)

    def show(self, text: str) -> None:
        """Print a line that is already logged."""
        self._console.print(text, markup=False)

    def handle(self, event: Event) -> None:
        """Print an event of the run."""
        match event:
            case PhaseStarted(name=name, turns=turns):
                self._expect(name, turns)
            case TurnFinished(turn=turn):
                self._count(turn)
            case StepFinished(metrics=metrics, n_steps=n_steps):
                self.close()
                self.say(step_line(metrics, n_steps))

    def _expect(self, phase: str, turns: int) -> None:
        self.close()
        self._samples = self._correct = 0
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("correct {task.fields[correct]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._progress.start()
            self._progress.add_task(phase, total=turns, correct="–")

    def _count(self, turn: Turn) -> None:
        self._samples += 1
        self._correct += turn.correct
        if self._progress is not None:
            task = self._progress.task_ids[0]
            self._progress.update(task, advance=1, correct=f"{self._correct / self._samples:.0%}")

    def close(self) -> None:
        """Remove the progress bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def step_line(row: Mapping[str, Any], n_steps: int) -> str:
    """The summary of a step in one line, from its metrics row."""
    parts = [f"step {row['step'] + 1}/{n_steps}", f"reward {row.get('reward/mean', float('nan')):.3f}"]
    parts.append(f"correct {row.get('kernel/correct_rate', 0.0):.0%}")
    if "multiturn/best_speedup_max" in row:
        parts.append(f"best speedup {row['multiturn/best_speedup_max']:.2f}x")
    if "eval/pass@1" in row:
        parts.append(f"held out {row['eval/pass@1']:.0%}")
    if row.get("train/skipped"):
        parts.append("all advantages zero; update skipped")
    if row.get("infra_rate"):
        parts.append(f"infrastructure errors {row['infra_rate']:.0%}")
    if row.get("cost/total_usd"):
        parts.append(f"{row['cost/total_usd']:.2f} USD")
    spent = shares_text({kind: row.get(f"time/in_{kind}", 0.0) for kind in KINDS}, row["time/total"])
    return "  ".join([*parts, f"{row['time/total']:.1f} s{spent}"])
