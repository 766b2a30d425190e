"""State and results of a run, read from its files."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.errors import KernelRLError
from kernelrl_core.monitoring.progress import progress_text
from kernelrl_core.monitoring.timeline import TIME_KINDS, shares_text
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.runs.directory import RunDir, find_run
from kernelrl_core.sources.yaml import YamlProblem, parse
from kernelrl_core.types import BuildStatus, Outcome

__all__ = ["recipe_plan", "result_rows", "run_facts", "steps_total", "summary", "tested_parts"]


def run_facts(run: RunDir) -> dict[str, Any]:
    """The summary of a run; of a run whose files cannot be read, the message under `damage`."""
    try:
        return {**summary(find_run(str(run.path))), "damage": None}
    except KernelRLError as error:
        return {"run": str(run.path), "state": run.state()[0], "damage": error.message}


def summary(run: RunDir) -> dict[str, Any]:
    """Flat facts about a run; None for facts that are not known yet. Of a search, `found` has the lines about it.

    `first_*` and `last_*` are means over the first and the last 3 steps, or fewer if these would overlap.
    """
    state, error = run.state()
    rows = run.rows("metrics")
    window = _window(len(rows))
    first, last = rows[:window], rows[-window:]
    return {
        "run": str(run.path),
        "state": state,
        "error": error or None,
        **({"found": found} if (found := run.facts()) else {}),
        "steps": len(rows),
        "steps_total": steps_total(rows, recipe_plan(run)[1]),
        "first_correct_rate": _mean(first, "kernel/correct_rate"),
        "last_correct_rate": _mean(last, "kernel/correct_rate"),
        "first_reward": _mean(first, "reward/mean"),
        "last_reward": _mean(last, "reward/mean"),
        "held_out_before": next((row["eval_start/pass@1"] for row in rows if "eval_start/pass@1" in row), None),
        "held_out_after": next((row["eval/pass@1"] for row in reversed(rows) if "eval/pass@1" in row), None),
        "best_speedup": max((row["multiturn/best_speedup_max"] for row in rows if _fast(row)), default=None),
        "checker_failed_steps": sum("checker_failed_rate" in row for row in rows),
        "skipped_steps": sum(row.get("train/skipped", 0) > 0 for row in rows),
        "seconds": sum(row["time/total"] for row in rows),
        "seconds_start": sum(_before(row) - row.get("time/eval_start", 0.0) for row in rows),
        "seconds_held_out": sum(row.get("time/eval", 0.0) + row.get("time/eval_start", 0.0) for row in rows),
        "seconds_all": sum(row["time/total"] + _before(row) for row in rows),
        "progress": run.progress() if state == "running" else None,
        "stopped_in": _stopped_in(run) if state in ("stopped", "failed", "killed") else None,
        "seconds_per_step": _mean(rows[-10:], "time/total"),
        "seconds_spent_on": {kind: sum(row.get(f"time/in_{kind}", 0.0) for row in rows) for kind in TIME_KINDS},
        "usd": next((row["cost/total_usd"] for row in reversed(rows) if "cost/total_usd" in row), None),
    }


def steps_total(rows: Sequence[Mapping[str, Any]], planned: int | None) -> int | None:
    """Steps of a run, from the metrics rows of its finished steps; before the first step those of its recipe."""
    done = rows[-1]["progress/done_frac"] if rows else None
    return round((rows[-1]["step"] + 1) / done) if done else planned


def recipe_plan(run: RunDir) -> tuple[float | None, int | None]:
    """Budget in US dollars and number of steps from the recipe of a run, as far as it names them."""
    try:
        recipe = parse((run.path / "recipe.yaml").read_text(encoding="utf-8")).data
    except (OSError, ValueError, YamlProblem):
        return None, None
    cost, train = (recipe.get(key) if isinstance(recipe, dict) else None for key in ("cost", "train"))
    budget = cost.get("budget_usd") if isinstance(cost, dict) else None
    steps = train.get("steps") if isinstance(train, dict) else None
    return (
        float(budget) if isinstance(budget, int | float) else None,
        steps if isinstance(steps, int) else None,
    )


def result_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and value of each line of a summary."""
    done = f"{facts['steps']} of {facts['steps_total']}" if facts["steps_total"] else "0"
    rows = [("run", str(facts["run"])), ("state", facts["state"])]
    rows += facts.get("found") or [("steps", done)]
    if facts["progress"] is not None:
        rows.append(("now", progress_text(facts["progress"])))
    if facts["stopped_in"] is not None:
        rows.append(("stopped in", facts["stopped_in"]))
    if facts["error"]:
        rows.append(("error", facts["error"].splitlines()[0]))
    if facts["steps"]:
        window = _window(facts["steps"])
        means = f"  (first {window} -> last {window} steps)" if window > 1 else "  (first -> last step)"
        correct = _change(facts["first_correct_rate"], facts["last_correct_rate"], "{:.0%}")
        rows.append(("train correct", f"{correct}{means}"))
        rows.append(("train reward", f"{_change(facts['first_reward'], facts['last_reward'], '{:.3f}')}{means}"))
    if facts["held_out_after"] is not None:
        held_out = _change(facts["held_out_before"], facts["held_out_after"], "{:.0%}")
        rows.append(("held-out correct", f"{held_out}  (before training -> latest)"))
    if facts["checker_failed_steps"]:
        steps = f"in {facts['checker_failed_steps']} of {facts['steps']} steps; the first failure is in logs.log"
        rows.append(("checker failures", f"{steps}; findings are incomplete"))
    if facts["best_speedup"] is not None:
        rows.append(("best speedup", f"{facts['best_speedup']:.2f}x"))
    if facts["steps"]:
        spent = shares_text(facts["seconds_spent_on"], facts["seconds"])
        steps_s = facts["seconds_all"] - facts["seconds_start"] - facts["seconds_held_out"]
        rows.append(("time", f"{facts['seconds_all']:.0f} s"))
        rows.append(("  start", f"{facts['seconds_start']:.0f} s  (loading and warm start)"))
        rows.append(("  steps", f"{steps_s:.0f} s, {facts['seconds_per_step']:.1f} s per step{spent}"))
        rows.append(("  held out", f"{facts['seconds_held_out']:.0f} s"))
    if facts["usd"]:
        rows.append(("cost", f"{facts['usd']:.2f} USD"))
    return rows


def tested_parts(run: RunDir, recipe: Recipe) -> list[tuple[str, str, str]]:
    """Part of the installation, `works` or `not tested`, and the evidence, for each part that a finished run uses."""
    samples, rows = run.rows("samples"), run.rows("metrics")
    updates = sum(not row.get("train/skipped") for row in rows)
    evaluations = [row["evaluation"] for row in samples if row.get("evaluation")]
    built = sum(one.get("build") == BuildStatus.BUILT.value for one in evaluations)
    correct = sum(row["outcome"] == Outcome.CORRECT.value for row in samples)
    held_out, checkpoints = len(run.rows("eval_samples")), len(run.rows("checkpoints"))
    counts = [
        (f"policy {recipe.policy.use}", len(samples), f"{len(samples)} replies sampled"),
        ("training", updates, f"{updates} updates, {checkpoints} checkpoints"),
        (f"backend {recipe.backend.use}", built, f"{built} of {len(evaluations)} kernels built"),
        (f"evaluator {recipe.evaluator.use}", built, f"{len(evaluations)} evaluations, {correct} correct"),
        ("held-out evaluation", held_out, f"{held_out} samples"),
    ]
    found = [(part, "works" if count else "not tested", evidence) for part, count, evidence in counts]
    if all(state == "works" for _, state, _ in found):
        return [*found, ("installation", "works", "a small model need not write correct kernels")]
    return [*found, ("installation", "not tested completely", "see 'kernelrl doctor'")]


def _stopped_in(run: RunDir) -> str | None:
    """The phase in which an unfinished run ended, in words."""
    facts = run.progress()
    return None if facts is None else progress_text(facts, ended=True)


def _before(row: Mapping[str, Any]) -> float:
    """Seconds between the start of a process and its first step, in the row of that step."""
    seconds: float = row.get("time/start", row.get("time/eval_start", 0.0))
    return seconds


def _window(n_steps: int) -> int:
    """Number of steps in the first and in the last mean."""
    return max(1, min(3, n_steps // 2))


def _change(before: float | None, after: float | None, form: str) -> str:
    return " -> ".join("–" if value is None else form.format(value) for value in (before, after))


def _mean(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    values = [row[key] for row in rows if key in row]
    return statistics.fmean(values) if values else None


def _fast(row: Mapping[str, Any]) -> bool:
    return "multiturn/best_speedup_max" in row
