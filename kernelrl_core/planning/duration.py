"""Expected duration of a run, from an earlier run with the same components on this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelrl_core.errors import KernelRLError
from kernelrl_core.runs.directory import RunDir, list_runs
from kernelrl_core.runs.summary import summary
from kernelrl_core.sources.yaml import load_yaml

__all__ = ["duration_text", "expected_duration", "header_entries"]

_SAME = ("tasks", "backend", "policy", "evaluator", "evaluation", "sampling", "prompt", "retriever")
"""Recipe blocks that must be equal. Sizes may differ: the estimate is proportional to the samples."""


def expected_duration(
    resolved: Mapping[str, Any], facts: Mapping[str, Any], runs: Sequence[RunDir] | None = None
) -> dict[str, Any]:
    """Facts for a plan: `seconds`, and `seconds_from`, the run with the figures. Both None if there is no such run.

    Args:
        resolved: the recipe as plain data.
        facts: the plan, with `samples_per_step`, `samples` and `held_out_samples`.
        runs: earlier runs, oldest first; None: those below `./runs`.
    """
    for run in reversed(list_runs() if runs is None else runs):
        try:
            seconds = _scaled(run, resolved, facts)
        except (KernelRLError, OSError, ValueError, KeyError, TypeError):  # damaged, or of another version
            continue
        if seconds is not None:
            return {"seconds": round(seconds), "seconds_from": str(run.path)}
    return {"seconds": None, "seconds_from": None}


def _scaled(run: RunDir, resolved: Mapping[str, Any], facts: Mapping[str, Any]) -> float | None:
    """Seconds of the planned run, from the time per sample of an earlier one; None if that cannot be compared."""
    path = run.path / "recipe.yaml"
    earlier = load_yaml(path.read_text(encoding="utf-8"), path)
    if not isinstance(earlier, dict) or any(earlier.get(key) != resolved.get(key) for key in _SAME):
        return None
    if earlier["episode"]["turns"] != facts["turns"] or facts["samples"] is None or facts["held_out_samples"] is None:
        return None
    known = summary(run)
    samples, held_out = len(run.rows("samples")), len(run.rows("eval_samples"))
    if not known["steps"] or not samples or (facts["held_out_samples"] and not held_out):
        return None
    training_s = known["seconds_all"] - known["seconds_start"] - known["seconds_held_out"]
    held_out_s = known["seconds_held_out"] * facts["held_out_samples"] / held_out if held_out else 0.0
    return float(known["seconds_start"] + training_s * facts["samples"] / samples + held_out_s)


def duration_text(facts: Mapping[str, Any], header: str) -> str:
    """The expected duration in words.

    Args:
        facts: result of `expected_duration`.
        header: sentence about duration or amounts in the recipe's header; empty without one.
    """
    if facts["seconds"] is not None:
        minutes = facts["seconds"] / 60
        if minutes < 2:
            text = f"{facts['seconds']} s"
        elif minutes < 120:
            text = f"{minutes:.0f} min"
        else:
            text = f"{minutes / 60:.1f} h"
        return f"about {text}, from the times of {facts['seconds_from']}"
    return f"unknown on this machine; its header: {header}" if header else "unknown: no earlier run to compare with"


def header_entries(path: Path) -> dict[str, str]:
    """The first sentences of the entries `Needs`, `Costs` and `Tests` of a recipe's header comment; empty without an
    entry. A recipe with `Tests` tests the installation: `kernelrl run` then lists the parts that worked."""
    found = {"Needs": "", "Costs": "", "Tests": ""}
    entry = ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("#").strip()
        word, _, rest = text.partition(" ")
        starts = line.startswith("# ") and not line.startswith("#  ")
        if starts:
            entry = word if word in found else ""
        if entry:
            found[entry] += f" {rest if starts else text}"
    return {key.lower(): re.split(r"(?<=\.) ", text.strip())[0].strip() for key, text in found.items()}
