"""Console output of a run, on stderr: one line per step; on a terminal a live progress bar, else lines of progress."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from kernelrl_core.monitoring.events import Event, PhaseStarted, StepFinished, TurnFinished
from kernelrl_core.monitoring.progress import Progress, progress_text
from kernelrl_core.monitoring.timeline import TIME_KINDS, shares_text
from kernelrl_core.types import Turn

__all__ = ["Console", "step_line"]

_log = logging.getLogger(__name__)


LINE_EVERY_S = 30.0
"""Without a terminal, a line of progress is printed after this many seconds without another line."""
_SAVE_EVERY_S = 2.0
"""Seconds between two records of the progress."""


class Console:
    """Prints and logs the progress of a run.

    Args:
        save: records the facts of the progress, for `kernelrl status`.
        log: file of the log.
    """

    def __init__(self, save: Callable[[Mapping[str, Any]], None] | None = None, log: Path | None = None) -> None:
        self._console = RichConsole(file=sys.stderr, highlight=False, emoji=False, soft_wrap=True)
        self._bar: ProgressBar | None = None
        self._prints = log is None or not _is_stderr(log)
        self._now, self._save = Progress("start"), save
        self._phases: list[tuple[PhaseStarted, Progress]] = []
        """The phases that are not over. A step may be sampled during a held-out evaluation."""
        self.stopping = False
        """Whether the run stops after its current step."""
        self._printed = time.monotonic()

    def say(self, text: str) -> None:
        """Print and log a line."""
        _log.info("%s", text)
        self._now.detail = "" if self._now.total is not None else text
        self.show(text)

    def warn(self, text: str) -> None:
        """Print a line that is already logged, and show it in the progress until the next sample."""
        self._now.detail = text
        self.show(text)

    def show(self, text: str) -> None:
        """Print a line that is already logged, unless standard error is the log, as in a detached run."""
        self._printed = time.monotonic()
        if self._prints:
            self._console.print(text, markup=False)

    async def keep_reporting(self) -> None:
        """Record the progress continuously, and print it where there is no terminal, until this is cancelled."""
        while True:
            await asyncio.sleep(min(_SAVE_EVERY_S, LINE_EVERY_S))
            facts = self.progress()
            if self._save is not None:
                await asyncio.to_thread(self._save, facts)
            if not self._console.is_terminal and time.monotonic() - self._printed >= LINE_EVERY_S:
                # The detail of a phase with samples is a warning that is printed already.
                line = progress_text(facts if facts["samples_at_most"] is None else {**facts, "detail": ""})
                _log.info("%s", line)
                self.show(line)

    def progress(self) -> Mapping[str, Any]:
        """Facts of the progress: `Progress.facts`, and `stopping`."""
        return {**self._now.facts(), "stopping": self.stopping}

    def handle(self, event: Event) -> None:
        """Print an event of the run."""
        match event:
            case PhaseStarted() as phase:
                self._phases.append((phase, Progress(phase.name, phase.turns)))
                self._follow()
            case TurnFinished(turn=turn, purpose=purpose):
                self._count(turn, purpose)
            case StepFinished(metrics=metrics, n_steps=n_steps):
                self.close()
                self.say(step_line(metrics, n_steps))
                later = [one for one in self._phases if one[0].step is not None and one[0].step > metrics["step"]]
                self._phases = [one for one in later if one[0].purpose == "train"]
                self._follow()

    def _follow(self) -> None:
        """Show the newest phase that has samples left."""
        left = [one for _, one in self._phases if one.done < (one.total or 0)]
        if not left or left[-1] is self._now:
            return
        self.close()
        self._now = left[-1]
        if self._console.is_terminal:
            self._bar = ProgressBar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("correct {task.fields[correct]}"),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._bar.add_task(self._now.phase, total=self._now.total, correct="–", rate="")
            self._draw()

    def _count(self, turn: Turn, purpose: str) -> None:
        own = [progress for phase, progress in self._phases if phase.has(turn, purpose)]
        if not own:
            return
        own[-1].done += 1
        own[-1].detail = ""
        own[-1].correct += turn.correct
        self._draw()
        self._follow()

    def _draw(self) -> None:
        if self._bar is not None and self._now.done:
            share = f"{self._now.correct / self._now.done:.0%}"
            rate = f"{self._now.facts()['samples_per_s'] or 0:.2g}/s"
            self._bar.update(self._bar.task_ids[0], completed=self._now.done, correct=share, rate=rate)

    def close(self) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _is_stderr(path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(2), path.stat())
    except OSError:
        return False


def step_line(row: Mapping[str, Any], n_steps: int) -> str:
    """The summary of a step in one line, from its metrics row."""
    parts = [
        f"step {row['step']} ({row['step'] + 1} of {n_steps})",
        f"reward {row.get('reward/mean', float('nan')):.3f}",
    ]
    parts.append(f"correct {row.get('kernel/correct_rate', 0.0):.0%}")
    if "multiturn/best_speedup_max" in row:
        parts.append(f"best speedup {row['multiturn/best_speedup_max']:.2f}x")
    if "eval/pass@1" in row:
        parts.append(f"held out {row['eval/pass@1']:.0%}")
    if row.get("train/skipped"):
        rejected = row.get("train/rejected", 0.0) > 0
        reason = "all training samples rejected by train.mismatch" if rejected else "all advantages zero"
        parts.append(f"{reason}; update skipped")
    if row.get("infra_rate"):
        parts.append(f"infrastructure errors {row['infra_rate']:.0%}")
    if row.get("cost/total_usd"):
        parts.append(f"{row['cost/total_usd']:.2f} USD")
    spent = shares_text({kind: row.get(f"time/in_{kind}", 0.0) for kind in TIME_KINDS}, row["time/total"])
    return "  ".join([*parts, f"{row['time/total']:.1f} s{spent}"])
