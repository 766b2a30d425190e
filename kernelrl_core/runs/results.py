"""Rows of finished turns, from a run directory or from a file of `kernelrl eval --output`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.errors import UsageError
from kernelrl_core.runs.directory import RunDir, find_run
from kernelrl_core.runs.row_shapes import SAMPLE, fault

__all__ = ["Results", "find_results", "last_rows", "read_reports"]

Purpose = Literal["train", "eval"]
"""Purpose of a turn: training, or a held-out evaluation."""
_REPORT = {"rows": [SAMPLE]}
_JOURNALS: dict[Purpose, str] = {"train": "samples", "eval": "eval_samples"}


@attrs.frozen
class Results:
    """A run, or a file of `kernelrl eval --output`."""

    path: Path
    """Run directory, or the file."""
    run: RunDir | None = None
    """The run; None: `path` is a file."""

    @property
    def name(self) -> str:
        """Name of the run, or of the file without its suffix."""
        return self.path.name if self.run is not None else self.path.stem

    def rows(self, purpose: Purpose) -> Iterator[dict[str, Any]]:
        """The rows of training turns or of turns of held-out evaluations, each once.

        A turn that was retried has several rows in a journal, of which the last one counts.

        Raises:
            UsageError: the file is no result of `kernelrl eval`.
            KernelRLError: a journal cannot be read, or a line before the last is damaged.
        """
        if self.run is None:
            yield from self.document()["rows"] if purpose == "eval" else ()
            return
        journal = _JOURNALS[purpose]
        last = {row["sample"]: number for number, row in enumerate(self.run.each_row(journal))}
        for number, row in enumerate(self.run.each_row(journal)):
            # Of a run that continues meanwhile, later rows are not in the first pass.
            if last.get(row["sample"]) == number:
                yield row

    def provenance(self) -> dict[str, Any]:
        """Versions, hardware and sources of the run or of the evaluation."""
        found: dict[str, Any] = self.run.provenance() if self.run is not None else self.document().get("provenance", {})
        return found

    def document(self) -> dict[str, Any]:
        """The report in a file of `kernelrl eval --output`.

        Raises:
            UsageError: the file is none, or has the reports of several checkpoints.
        """
        reports = read_reports(self.path)
        if len(reports) > 1:
            raise UsageError(
                f"{self.path}: it has the evaluations of several checkpoints",
                fix="kernelrl eval RUN --checkpoint C --output FILE for one of them",
                see="export",
            )
        return reports[0]


def read_reports(path: Path) -> list[dict[str, Any]]:
    """The reports in a file of `kernelrl eval --output`, one for each checkpoint.

    Raises:
        UsageError: the file is none.
    """
    fix = "use a file that kernelrl eval --output has written, or a run"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", fix=fix, see="evaluation-results") from error
    except ValueError:
        raise UsageError(f"{path}: not a JSON document", fix=fix, see="evaluation-results") from None
    several = isinstance(document, dict) and "evaluations" in document
    damage = fault(document, {"evaluations": [_REPORT]} if several else _REPORT)
    found: list[dict[str, Any]] = []
    if not damage:
        found = document["evaluations"] if several else [document]
    if not found:
        raise UsageError(
            f"{path}: no output of kernelrl eval: {damage or 'it has no evaluation'}", fix=fix, see="evaluation-results"
        )
    return found


def find_results(name: str) -> Results:
    """The results at a path, or of the run with a name below `./runs`.

    Raises:
        LookupFailed: there are none; the message names the nearest run.
        UsageError: the recipe of the run is missing.
    """
    path = Path(name)
    if path.is_file():
        return Results(path)
    run = find_run(name)
    return Results(run.path, run)


def last_rows(results: Results) -> list[dict[str, Any]]:
    """The rows of the last held-out evaluation, ordered by sample.

    Raises:
        UsageError: there is none.
        KernelRLError: the journal is damaged.
    """
    rows = list(results.rows("eval"))
    if not rows:
        label = f"run {results.path}" if results.run is not None else str(results.path)
        fix = (
            f"kernelrl eval {shlex.quote(str(results.path))} --output FILE, then name FILE"
            if results.run is not None
            else ""
        )
        raise UsageError(f"{label} has no held-out evaluation", fix=fix, see="evaluation-results")
    last = max(row["step"] for row in rows)
    chosen = [row for row in rows if row["step"] == last]
    return sorted(chosen, key=lambda row: (row["task_index"], row["attempt"], row["turn"]))
