"""All samples of a run without their texts: the table in which the page filters and sorts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kernelrl_core.api.monitoring import Alarms
from kernelrl_core.api.runs import JournalReader, RunDir, needs_review, result_rows, summary
from kernelrl_report.charts import charts, definitions
from kernelrl_report.verdict import verdict

__all__ = ["FIELDS", "RunIndex"]

FIELDS = (
    "held_out",
    "step",
    "task_index",
    "episode",
    "turn",
    "task",
    "outcome",
    "verdict",
    "score",
    "speedup",
    "advantage",
    "return",
    "excluded",
    "verified",
    "rules",
    "evidence",
    "tokens",
    "parents",
)
"""Fields of a record, in order. `task` and `rules` are indices into `RunIndex.tasks` and `RunIndex.rules`; `evidence`
lists the findings of samples to review; `parents` are the turns that an attempt of a search continues from."""

_ADVANTAGE, _EXCLUDED, _EVIDENCE = (FIELDS.index(name) for name in ("advantage", "excluded", "evidence"))
_EVIDENCE_LENGTH = 300

EpisodeKey = tuple[int, int, int, int]
"""1 for a held-out episode else 0, step, index of the task, index of the episode."""


class RunIndex:
    """The samples and metrics of a run, read from its journals. Not thread-safe.

    Raises:
        UsageError: a newer version of kernelrl wrote the run.
    """

    def __init__(self, run: RunDir) -> None:
        run.require_known_version()
        self.run = run
        self.records: list[list[Any]] = []
        """One list of `FIELDS` per sample, in the order of the journals."""
        self.tasks: list[tuple[str, Any]] = []
        """Id and level of each task."""
        self.rules: list[str] = []
        self.changes: list[int] = []
        """Index of the record of each addition and change."""
        self.metrics: list[dict[str, Any]] = []
        self.episodes: dict[EpisodeKey, dict[int, int]] = {}
        """Episode -> turn -> byte offset of its last row."""
        self._numbers: dict[tuple[int, str], int] = {}
        self._task_numbers: dict[str, int] = {}
        self._rule_numbers: dict[str, int] = {}
        self._credits: dict[str, Mapping[str, Any]] = {}
        self._facts: dict[str, Any] | None = None
        self._charts: list[dict[str, Any]] = []
        self._alarms, self._alarm_lines = Alarms(), list[tuple[int, str]]()
        self._judged: tuple[str, str, int, int] | None = None
        self._verdict: dict[str, Any] = {}
        names = ("samples", "eval_samples", "credits", "metrics")
        self._journals = {name: JournalReader(run.journal_path(name)) for name in names}

    def refresh(self) -> None:
        """Read the rows that were appended since the last call.

        Raises:
            KernelRLError: a journal cannot be read, or has a damaged row before its last.
        """
        # Before the samples: a credit that is read has its sample on disk.
        credited = [row for _, row in self._journals["credits"].new_rows()]
        for held_out, name in ((0, "samples"), (1, "eval_samples")):
            for offset, row in self._journals[name].new_rows():
                self._add(held_out, offset, row)
        for row in credited:
            self._credits[row["sample"]] = row
            number = self._numbers.get((0, row["sample"]))
            if number is not None:
                _credit(self.records[number], row)
                self.changes.append(number)
        for _, row in self._journals["metrics"].new_rows():
            self.metrics.append(row)
            self._alarm_lines += [(row["step"], line) for line in self._alarms.after(row)]

    def rows(self, key: EpisodeKey) -> list[dict[str, Any]]:
        """The rows of an episode, in the order of its turns.

        Raises:
            KeyError: there is no such episode.
            KernelRLError: the journal cannot be read.
        """
        offsets = self.episodes[key]
        journal = self._journals["eval_samples" if key[0] else "samples"]
        return journal.rows_at([offsets[turn] for turn in sorted(offsets)])

    def document(self, after: int = 0, metrics_after: int = 0) -> dict[str, Any]:
        """Everything that the page shows except texts, as plain data.

        Args:
            after: position of the last document that the page has; only later changes are included.
            metrics_after: number of the rows of metrics that the page has.
        """
        changed = list(dict.fromkeys(self.changes[after:]))
        rows = self.metrics[metrics_after:]
        names = list(dict.fromkeys(name for row in rows for name in row))
        return {
            "run": self.run.name,
            "fields": FIELDS,
            "position": len(self.changes),
            "records": [[number, *self.records[number]] for number in changed],
            "tasks": self.tasks if changed else None,
            "rules": self.rules if changed else None,
            "metrics_count": len(self.metrics),
            "metrics": {name: [row.get(name) for row in rows] for name in names},
            "definitions": definitions(names),
            **self._result(),
        }

    def _result(self) -> dict[str, Any]:
        # Computed again with every step only: `summary` reads all metrics.
        if self._facts is None or self._facts["steps"] != len(self.metrics):
            self._facts = summary(self.run)
            self._charts = charts(self.metrics)
        state, error = self.run.state()
        progress = self.run.progress() if state == "running" else None
        facts = {**self._facts, "state": state, "error": error or None, "progress": progress, "found": self.run.facts()}
        suspects = sum(record[_EVIDENCE] is not None for record in self.records)
        judged = (state, error, len(self.metrics), suspects)
        if self._judged != judged:
            found = verdict(state, error, self.metrics, alarms=self._alarm_lines, suspects=suspects)
            self._judged, self._verdict = judged, attrs.asdict(found)
        shown = {"verdict": self._verdict, "charts": self._charts}
        return {"state": state, "facts": result_rows(facts)[2:], **shown}

    def _add(self, held_out: int, offset: int, row: Mapping[str, Any]) -> None:
        place = (held_out, row["step"], row["task_index"], row["attempt"], row["turn"])
        review = needs_review(row, hacked=True)
        record = [
            *place,
            self._task(row["task_id"], row["level"]),
            row["outcome"],
            row["verdict"],
            row["score"]["total"],
            row["speedup"],
            None,
            None,
            "",
            row["verified"],
            [self._rule(rule) for rule in sorted({found["rule"] for found in row["findings"]})],
            [[one["rule"], one["severity"], one["evidence"][:_EVIDENCE_LENGTH]] for one in row["findings"]]
            if review
            else None,
            (row["reply"].get("counted") or [0, len(row["reply"]["tokens"])])[1],
            row.get("parents", []),
        ]
        if not held_out and row["sample"] in self._credits:
            _credit(record, self._credits[row["sample"]])
        # A turn that was retried has several rows; the last one counts.
        number = self._numbers.setdefault((held_out, row["sample"]), len(self.records))
        self.records[number:] = [record] if number == len(self.records) else [record, *self.records[number + 1 :]]
        self.changes.append(number)
        self.episodes.setdefault(place[:4], {})[place[4]] = offset

    def _task(self, name: str, level: Any) -> int:
        number = self._task_numbers.setdefault(name, len(self.tasks))
        if number == len(self.tasks):
            self.tasks.append((name, level))
        return number

    def _rule(self, name: str) -> int:
        number = self._rule_numbers.setdefault(name, len(self.rules))
        if number == len(self.rules):
            self.rules.append(name)
        return number


def _credit(record: list[Any], row: Mapping[str, Any]) -> None:
    reason = row.get("reason") or next((why for why in ("masked", "filtered") if row[why]), "")
    record[_ADVANTAGE : _EXCLUDED + 1] = [row["advantage"], row["return"], reason]
