"""How a run stands and what came of it, read from its files alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.monitoring.timeline import KINDS, shares_text
from kernelrl_core.runs.directory import RunDir

__all__ = ["result_rows", "summary"]


def summary(run: RunDir) -> dict[str, Any]:
    """Flat facts about a run; None where nothing is known yet.

    `first_*` and `last_*` are means over the first and the last 3 steps, or fewer when the steps would overlap.
    """
    state, error = run.state()
    rows = run.rows("metrics")
    window = max(1, min(3, len(rows) // 2))
    first, last = rows[:window], rows[-window:]
    return {
        "run": str(run.path),
        "state": state,
        "error": error or None,
        "steps": len(rows),
        "steps_total": round((rows[-1]["step"] + 1) / rows[-1]["progress/done_frac"]) if rows else None,
        "first_correct_rate": _mean(first, "kernel/correct_rate"),
        "last_correct_rate": _mean(last, "kernel/correct_rate"),
        "first_reward": _mean(first, "reward/mean"),
        "last_reward": _mean(last, "reward/mean"),
        "held_out_before": next((row["eval_start/pass@1"] for row in rows if "eval_start/pass@1" in row), None),
        "held_out_after": next((row["eval/pass@1"] for row in reversed(rows) if "eval/pass@1" in row), None),
        "best_speedup": max((row["multiturn/best_speedup_max"] for row in rows if _fast(row)), default=None),
        "skipped_steps": sum(row.get("train/skipped", 0) > 0 for row in rows),
        "seconds": sum(row["time/total"] for row in rows),
        "seconds_per_step": _mean(rows[-10:], "time/total"),
        "seconds_spent_on": {kind: sum(row.get(f"time/in_{kind}", 0.0) for row in rows) for kind in KINDS},
        "usd": next((row["cost/total_usd"] for row in reversed(rows) if "cost/total_usd" in row), None),
    }


def result_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A summary for people: label and value of each line."""
    done = f"{facts['steps']} of {facts['steps_total']}" if facts["steps_total"] else "0"
    rows = [("run", str(facts["run"])), ("state", facts["state"]), ("steps", done)]
    if facts["error"]:
        rows.append(("error", facts["error"].splitlines()[0]))
    if facts["steps"]:
        rows.append(("correct", _change(facts["first_correct_rate"], facts["last_correct_rate"], "{:.0%}")))
        rows.append(("reward", _change(facts["first_reward"], facts["last_reward"], "{:.3f}")))
    if facts["held_out_after"] is not None:
        rows.append(("held out", _change(facts["held_out_before"], facts["held_out_after"], "{:.0%}")))
    if facts["best_speedup"] is not None:
        rows.append(("speedup", f"{facts['best_speedup']:.2f}x at best"))
    if facts["steps"]:
        spent = shares_text(facts["seconds_spent_on"], facts["seconds"])
        rows.append(("time", f"{facts['seconds']:.0f} s, {facts['seconds_per_step']:.1f} s per step{spent}"))
    if facts["usd"]:
        rows.append(("cost", f"{facts['usd']:.2f} USD"))
    return rows


def _change(before: float | None, after: float | None, form: str) -> str:
    return " -> ".join("–" if value is None else form.format(value) for value in (before, after))


def _mean(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    values = [row[key] for row in rows if key in row]
    return statistics.fmean(values) if values else None


def _fast(row: Mapping[str, Any]) -> bool:
    return "multiturn/best_speedup_max" in row
