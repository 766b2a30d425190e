"""Observation of a run from its files only: by another process, on a copy, or after the end of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from kernelrl_core.api.checkers import Severity
from kernelrl_core.api.monitoring import Alarms
from kernelrl_core.api.runs import JournalReader, RunDir, State, needs_review, recipe_plan, steps_total

__all__ = ["RunObserver", "SlowEvaluation"]

_SLOWEST = 20
"""Slowest evaluations that are kept."""
_PARTS = ("build", "run", "timing", "no_op")
"""Parts of an evaluation without waiting."""


@attrs.frozen
class SlowEvaluation:
    """An evaluation that took long."""

    seconds: float
    """Seconds of building, trials, timing and probes, without waiting."""
    sample: str
    """Sample id, with the prefix `eval ` for a held-out evaluation."""
    task_id: str
    outcome: str
    parts: Mapping[str, float]
    """Seconds of these parts, under the evaluator's names."""


class RunObserver:
    """State, metrics, alarms, findings and slowest evaluations of a run. Each row is read once.

    Raises:
        KernelRLError: a journal cannot be read, or has a damaged line before its last one.
    """

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.budget_usd, self.planned_steps = recipe_plan(run)
        self.state: State = "killed"
        self.error = ""
        self.progress: Mapping[str, Any] | None = None
        self._forget()

    def _forget(self) -> None:
        self.rows: list[dict[str, Any]] = []
        """Metrics rows of the finished steps."""
        self.alarms: list[tuple[int, str]] = []
        """Step and line of each alarm."""
        self.samples = 0
        """Recorded training samples."""
        self.slowest: list[SlowEvaluation] = []
        """The slowest evaluations, in descending order."""
        self._alarms = Alarms()
        self._found: dict[str, tuple[tuple[str, ...], bool]] = {}
        names = ("metrics", "samples", "eval_samples")
        self._readers = {name: JournalReader(self.run.journal_path(name)) for name in names}

    @property
    def steps_total(self) -> int | None:
        """Steps of the run; None if that is not known before its first step."""
        return steps_total(self.rows, self.planned_steps)

    @property
    def findings(self) -> Counter[str]:
        """Rule -> training samples with a finding of this rule that is more than a note."""
        return Counter(rule for rules, _ in self._found.values() for rule in rules)

    @property
    def suspects(self) -> int:
        """Training samples that a person should review."""
        return sum(suspect for _, suspect in self._found.values())

    def update(self) -> list[dict[str, Any]]:
        """Read the new rows and the present state. Returns the new metrics rows."""
        # The state first: rows that are written before the end of the run are then read, too.
        self.state, self.error = self.run.state()
        self.progress = self.run.progress()
        if any(reader.replaced() for reader in self._readers.values()):
            self._forget()
        for _, row in self._readers["samples"].new_rows():
            self._add(row, "")
        for _, row in self._readers["eval_samples"].new_rows():
            self._add(row, "eval ")
        new = [row for _, row in self._readers["metrics"].new_rows()]
        for row in new:
            self.rows.append(row)
            self.alarms += [(row["step"], line) for line in self._alarms.after(row)]
        return new

    def _add(self, row: Mapping[str, Any], prefix: str) -> None:
        if not prefix:
            self.samples += 1
            rules = tuple({found["rule"] for found in row["findings"] if found["severity"] != Severity.NOTE})
            suspect = needs_review(row)
            # A turn that was retried has several rows; the last one counts.
            self._found.pop(row["sample"], None)
            if rules or suspect:
                self._found[row["sample"]] = rules, suspect
        evaluation = row["evaluation"]
        if evaluation is None or any(evaluation["provenance"].get(key) for key in ("cached", "joined")):
            return
        parts = {name: float(evaluation["seconds"].get(name, 0.0)) for name in _PARTS}
        slow = SlowEvaluation(sum(parts.values()), prefix + row["sample"], row["task_id"], row["outcome"], parts)
        if len(self.slowest) == _SLOWEST and slow.seconds <= self.slowest[-1].seconds:
            return
        self.slowest = sorted([*self.slowest, slow], key=lambda one: -one.seconds)[:_SLOWEST]
