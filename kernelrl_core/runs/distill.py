"""Distillation: the best training samples of a run as supervised data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from kernelrl_core.errors import KernelRLError
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.journal import read_rows
from kernelrl_core.types import Outcome, Verdict

__all__ = ["Choice", "Distilled", "Selection", "distill", "select_best"]


@attrs.frozen
class Choice:
    """Which samples are selected."""

    per_task: int | None = 4
    """Maximum samples per task; None: all."""
    min_speedup: float | None = None
    """Least speedup; samples without a measured speedup are excluded."""
    suspects: bool = False
    """Include samples with verdict `suspect`."""


@attrs.frozen
class Distilled:
    """The selected samples, and counts of the others."""

    conversations: tuple[dict[str, Any], ...]
    """Ordered by task (in the order of their first sample), then best first."""
    left_out: Mapping[str, int]
    """Reason of exclusion -> number of samples."""


@attrs.frozen
class Selection:
    """The best samples, and counts of the others."""

    entries: tuple[dict[str, Any], ...]
    """Required parts of the rows, ordered by task (in the order of their first sample), then best first."""
    left_out: Mapping[str, int]
    """Reason of exclusion -> number of samples."""

    def reasons(self) -> str:
        """The reasons of exclusion as text."""
        listed = sorted(self.left_out.items(), key=lambda item: -item[1])
        return ", ".join(f"{count} {reason}" for reason, count in listed) or "it has no samples"


@attrs.frozen
class _Sample:
    """The required parts of a row. Tokens and evaluations of a long run would not fit in memory."""

    rank: tuple[Any, ...]
    entry: dict[str, Any]


def distill(run: RunDir, choice: Choice) -> Distilled:
    """Select the best training samples of a run. Held-out evaluations are not read.

    A sample must be correct with verdict clean, and must not have failed verification. Duplicate kernels of a task are
    excluded. The samples of a task are ranked by speedup (measured ones first), then score, then order in the run.

    Raises:
        KernelRLError: no sample is selected; the message counts the reasons.
    """
    found = select_best(read_rows(run.journal_path("samples")), choice, lambda row: _conversation(row, run.name))
    if not found.entries:
        raise KernelRLError(f"run {run.path} has no sample to learn from: {found.reasons()}")
    return Distilled(found.entries, found.left_out)


def select_best(
    rows: Iterable[Mapping[str, Any]], choice: Choice, part: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> Selection:
    """Select the best samples of some rows; see `distill`.

    Args:
        rows: each sample may have several; the last one counts.
        part: returns the required part of a row, with `sample`, `task_id` and `kernel_sha256`.
    """
    why: dict[str, str] = {}
    good: dict[str, _Sample] = {}
    for row in rows:
        # A turn that was retried has several rows; the last one counts.
        why[row["sample"]] = reason = _unfit(row, choice)
        good.pop(row["sample"], None)
        if not reason:
            good[row["sample"]] = _Sample(_rank(row), part(row))
    by_task: dict[str, list[_Sample]] = defaultdict(list)
    for sample in good.values():
        by_task[sample.entry["task_id"]].append(sample)
    chosen: list[dict[str, Any]] = []
    for samples in by_task.values():
        kernels: dict[str, dict[str, Any]] = {}
        for entry in (sample.entry for sample in sorted(samples, key=lambda sample: sample.rank)):
            if kernels.setdefault(entry["kernel_sha256"], entry) is not entry:
                why[entry["sample"]] = "duplicate"
        best = list(kernels.values())
        kept = best[: choice.per_task]
        chosen += kept
        why.update((entry["sample"], "not among the best") for entry in best[len(kept) :])
    return Selection(tuple(chosen), Counter(reason for reason in why.values() if reason))


def _unfit(row: Mapping[str, Any], choice: Choice) -> str:
    if row["outcome"] != Outcome.CORRECT:
        return "not correct"
    if row["verdict"] != Verdict.CLEAN and not (choice.suspects and row["verdict"] == Verdict.SUSPECT):
        return "not clean"
    if row.get("verified") is False:
        return "not correct when judged again"
    if choice.min_speedup is not None and (row["speedup"] is None or row["speedup"] < choice.min_speedup):
        return "too slow, or of unknown speed"
    return ""


def _rank(row: Mapping[str, Any]) -> tuple[Any, ...]:
    place = (row["step"], row["task_index"], row["attempt"], row["turn"])
    return (-(row["speedup"] or 0.0), -row["score"]["total"], *place)


def _conversation(row: Mapping[str, Any], run: str) -> dict[str, Any]:
    messages = [dict(message) for message in row["prompt"]["messages"]]
    # The prompt may end with a prefill, such as `<think>`.
    prefill = row["prompt"].get("opening", "")
    if messages and messages[-1]["role"] == "assistant":
        last = messages.pop()["content"]
        prefill = prefill or last
    messages.append({"role": "assistant", "content": prefill + row["reply"]["text"]})
    return {
        "messages": messages,
        "task_id": row["task_id"],
        "task_sha256": row["task_sha256"],
        "kernel_sha256": row["kernel_sha256"],
        "backend": row["extraction"]["candidate"]["backend"],
        "speedup": row["speedup"],
        "reward": row["score"]["total"],
        "run": run,
        "sample": row["sample"],
    }
