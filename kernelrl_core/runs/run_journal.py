"""The journals of a run: reading them on resume, and writing them.

One thread writes all rows, so that waiting for the disk never blocks the event loop. The existing rows determine where
an opened run continues:

    checkpoints.jsonl   the last row whose files are intact is the commit point: all steps before it are complete
    samples.jsonl       rows of later steps are turns that are reused, not sampled or evaluated again
    credits.jsonl       rows of later steps were written before a crash and are not written twice
    metrics.jsonl       lacks at most the row that the last checkpoint contains
    begun.jsonl         one row per started reply; a started reply without a turn was lost
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

from kernelrl_core.algorithms.credit import Credit
from kernelrl_core.monitoring.costs import Spent, spent_on_row, spent_on_step, spent_on_turn
from kernelrl_core.monitoring.events import TurnFinished
from kernelrl_core.monitoring.metrics import SeenKernels
from kernelrl_core.monitoring.monitor import Monitor
from kernelrl_core.runs.checkpoints import checkpoint_damage
from kernelrl_core.runs.directory import JOURNALS, RunDir
from kernelrl_core.runs.journal import Journal
from kernelrl_core.runs.rows import sample_id, sample_row, turn_from_row
from kernelrl_core.types import Outcome, SampleId, Task, Turn

__all__ = ["RunJournal", "RunRecorder"]


class RunJournal:
    """The journals of a run. The process must hold the lock of the run."""

    def __init__(self, run: RunDir) -> None:
        """Open the journals, repair damage of a crash, and read the progress of the run."""
        self._journals = {name: Journal(run.journal_path(name)) for name in JOURNALS}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self.checkpoints = run.rows("checkpoints")
        """Rows of the checkpoints, oldest first, without damaged ones at the end."""
        self.damaged = self._drop_damaged(run)
        """A line for the user, if the newest checkpoint is damaged."""
        self._credited = {row["sample"] for row in run.rows("credits")}
        metrics = run.rows("metrics")
        self._metric_steps = {row["step"] for row in metrics}
        if self.last_checkpoint is not None and self.last_checkpoint["step"] not in self._metric_steps:
            metrics.append(self.last_checkpoint["metrics"])
            self._journals["metrics"].append(metrics[-1:])
            self._metric_steps.add(self.last_checkpoint["step"])
        self.seen = SeenKernels()
        """Kernels of the finished steps."""
        self.booked = sum((spent_on_step(row) for row in metrics if row["step"] < self.next_step), Spent())
        """Amounts spent by the finished steps."""
        training = sum((spent_on_step(row) for row in metrics), Spent())
        self.spent = Spent(train_tokens=training.train_tokens, scored_tokens=training.scored_tokens)
        """Amounts that the run has spent, as recorded in the journals."""
        self._started = {(row["purpose"], row["sample"]) for row in run.each_row("begun")}
        """Replies that were started and, because of an interruption, not recorded."""
        self._open_samples = self._read_samples(run)
        self._open_evals = self._read_evals(run)
        self.lost = len(self._started)
        """Number of replies that an interruption ended before they were recorded, and that will be sampled again."""

    @property
    def last_checkpoint(self) -> Mapping[str, Any] | None:
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def next_step(self) -> int:
        """First step that is not complete."""
        return int(self.checkpoints[-1]["loop"]["next_step"]) if self.checkpoints else 0

    def is_best(self, row: Mapping[str, Any], metric: str | None) -> bool:
        """Whether a step with these metrics has a higher value of `metric` than every checkpoint before. False without
        a metric or a value."""
        if metric is None or metric not in row:
            return False
        earlier = [found["metrics"][metric] for found in self.checkpoints if metric in found["metrics"]]
        return all(row[metric] > value for value in earlier)

    def finished_turns(self, step: int, tasks: Sequence[Task]) -> dict[SampleId, Turn]:
        """Recorded turns of an interrupted step, whose batch is `tasks`."""
        rows = self._open_samples.get(step, [])
        return {sample_id(row): turn_from_row(row, tasks[row["task_index"]]) for row in rows}

    def finished_evals(self, update: int, tasks: Sequence[Task]) -> dict[SampleId, Turn]:
        """Recorded turns of an interrupted held-out evaluation after `update` steps."""
        rows = self._open_evals.get(update, [])
        return {sample_id(row): turn_from_row(row, tasks[row["task_index"]]) for row in rows}

    async def begin(self, purpose: str, where: SampleId, **facts: float) -> None:
        """Record that a reply is started, for purpose `train` or `eval`, with further facts about it."""
        journal = self._journals["begun"]
        row = {"purpose": purpose, "sample": str(where), **facts}
        await asyncio.get_running_loop().run_in_executor(self._thread, partial(journal.append, [row], wait=False))

    async def record_sample(self, turn: Turn) -> Mapping[str, Any]:
        """Write a training turn, and return its row."""
        row = sample_row(turn)
        await self._append("samples", [row])
        return row

    async def record_eval(self, turn: Turn) -> Mapping[str, Any]:
        """Write a turn of a held-out evaluation, and return its row."""
        row = sample_row(turn)
        await self._append("eval_samples", [row])
        return row

    async def record_credits(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the credits of a step, except those that are already recorded."""
        new = [row for row in rows if row["sample"] not in self._credited]
        await self._append("credits", new)
        self._credited.update(row["sample"] for row in new)

    def cache_hit(self, batch: Sequence[Credit]) -> dict[str, float]:
        """Metric `cache_hit` of a step; empty if no kernel was evaluated. Adds the step's kernels to the seen ones."""
        repeated = self.seen.share(credit.turn for credit in batch)
        return {} if repeated is None else {"cache_hit": repeated}

    async def commit(self, checkpoint: Mapping[str, Any]) -> None:
        """Write the row of a checkpoint whose files exist. This commits its step."""
        await self._append("checkpoints", [checkpoint])
        self.checkpoints.append(dict(checkpoint))

    async def record_metrics(self, row: Mapping[str, Any]) -> None:
        """Write the metrics of a step, unless they are already recorded."""
        if row["step"] not in self._metric_steps:
            await self._append("metrics", [row])
            self._metric_steps.add(row["step"])

    def close(self) -> None:
        """Wait for pending writes, and close the files."""
        self._thread.shutdown(wait=True)
        for journal in self._journals.values():
            journal.close()

    async def _append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._journals[name].append, rows)

    def _read_samples(self, run: RunDir) -> dict[int, list[dict[str, Any]]]:
        # A turn that was retried after an infrastructure error has several rows; the last one counts.
        evaluated: dict[SampleId, tuple[str, str] | None] = {}
        open_rows: dict[SampleId, dict[str, Any]] = {}
        for row in run.each_row("samples"):
            where = sample_id(row)
            self._account("train", row)
            if where.step >= self.next_step:
                open_rows[where] = row
            else:
                was_evaluated = row["evaluation"] is not None and row["kernel_sha256"]
                evaluated[where] = (row["task_sha256"], row["kernel_sha256"]) if was_evaluated else None
        self.seen.share_of([kernel for _, kernel in sorted(evaluated.items()) if kernel is not None])
        waiting: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for where, row in sorted(open_rows.items()):
            # Samples lost to infrastructure errors are sampled again, unless their batch is already committed.
            if row["outcome"] != Outcome.INFRA_ERROR or row["sample"] in self._credited:
                waiting[where.step].append(row)
        return waiting

    def _read_evals(self, run: RunDir) -> dict[int, list[dict[str, Any]]]:
        waiting: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in run.each_row("eval_samples"):
            self._account("eval", row)
            committed = 0 < self.next_step >= row["step"]
            if not committed and row["outcome"] != Outcome.INFRA_ERROR:
                waiting[row["step"]].append(row)
        return waiting

    def _account(self, purpose: str, row: Mapping[str, Any]) -> None:
        self.spent += spent_on_row(row)
        self._started.discard((purpose, row["sample"]))

    def _drop_damaged(self, run: RunDir) -> str:
        """Remove damaged checkpoints from the end of `checkpoints`; the line that reports them, or an empty one."""
        line = ""
        while self.checkpoints and (damage := checkpoint_damage(run.checkpoints, self.checkpoints[-1])):
            line = line or f"checkpoint {self.checkpoints[-1]['name']} is damaged: {damage}"
            self.checkpoints.pop()
        if not line:
            return ""
        before = f"checkpoint {self.checkpoints[-1]['name']}" if self.checkpoints else "the initial weights"
        return f"{line}; continuing from {before}: later steps are trained again with their recorded samples"


class RunRecorder:
    """Recorder of a training run; see `rollout.episode.Recorder`."""

    def __init__(self, journal: RunJournal, monitor: Monitor) -> None:
        self._journal, self._monitor = journal, monitor

    def require_budget(self) -> None:
        self._monitor.meter.check()

    async def begin(self, purpose: Literal["train", "eval"], where: SampleId) -> None:
        await self._journal.begin(purpose, where)

    async def record(self, purpose: Literal["train", "eval"], turn: Turn) -> None:
        row = await (self._journal.record_sample(turn) if purpose == "train" else self._journal.record_eval(turn))
        self._monitor.meter.add(spent_on_turn(turn))
        self._monitor.publish(TurnFinished(turn, purpose, row))
