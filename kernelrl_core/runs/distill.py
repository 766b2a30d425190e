"""A run's best training samples as supervised data."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.types.serialization import from_json, to_json
from kernelrl_core.errors import KernelRLError, UsageError
from kernelrl_core.runs.journal import read_rows
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.types import Message, Outcome, Verdict, WarmStartExample

__all__ = ["Choice", "Distilled", "distill"]


@attrs.frozen
class Choice:
    """Which samples are good enough."""

    per_task: int | None = 4
    """Best samples of a task; None: all."""
    min_speedup: float | None = None
    """Least speedup; samples without a measured one are left out."""
    suspects: bool = False
    """Also samples whose verdict is `suspect`."""


@attrs.frozen
class Distilled:
    """What was chosen."""

    conversations: tuple[dict[str, Any], ...]
    """Tasks in the order of their first sample, the best of a task first."""
    left_out: Mapping[str, int]
    """Samples by the reason why they were not chosen."""


@attrs.frozen
class _Sample:
    """What is kept of a row; tokens and evaluations of a long run would fill the memory."""

    rank: tuple[Any, ...]
    conversation: dict[str, Any]


def distill(run: RunDir, choice: Choice) -> Distilled:
    """The best samples of a run's training. Evaluations, whose tasks are held out, are not looked at.

    A sample is chosen when it is correct, its verdict is clean, no second judgement contradicts, no better sample of
    its task holds the same kernel, and it is among the best of its task: by speedup where that was measured, then by
    reward, then by its place in the run.

    Raises:
        KernelRLError: nothing is left; the message says why.
    """
    why: dict[str, str] = {}
    good: dict[str, _Sample] = {}
    for row in read_rows(run.journal_path("samples")):
        # Of a turn that was tried again, the last row counts.
        why[row["sample"]] = reason = _unfit(row, choice)
        good.pop(row["sample"], None)
        if not reason:
            good[row["sample"]] = _Sample(_rank(row), _conversation(row, run.name))
    by_task: dict[str, list[_Sample]] = defaultdict(list)
    for sample in good.values():
        by_task[sample.conversation["task_id"]].append(sample)
    chosen: list[dict[str, Any]] = []
    for samples in by_task.values():
        kernels: dict[str, dict[str, Any]] = {}
        for entry in (sample.conversation for sample in sorted(samples, key=lambda sample: sample.rank)):
            if kernels.setdefault(entry["kernel_sha256"], entry) is not entry:
                why[entry["sample"]] = "duplicate"
        best = list(kernels.values())
        kept = best[: choice.per_task]
        chosen += kept
        why.update((entry["sample"], "not among the best") for entry in best[len(kept) :])
    left_out = Counter(reason for reason in why.values() if reason)
    if not chosen:
        told = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common()) or "it has no samples"
        raise KernelRLError(f"run {run.path} has no sample to learn from: {told}")
    return Distilled(tuple(chosen), left_out)


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
    # The prompt may have ended with the beginning of the reply, such as an opening think tag.
    opening = row["prompt"].get("opening", "")
    if messages and messages[-1]["role"] == "assistant":
        begun = messages.pop()["content"]
        opening = opening or begun
    messages.append({"role": "assistant", "content": opening + row["reply"]["text"]})
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
