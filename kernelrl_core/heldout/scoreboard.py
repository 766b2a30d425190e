"""The scoreboard of a held-out evaluation: pass@k, fast_p, geometric mean of speedups, outcomes.

The unit is the episode. It counts once, with its best turn, and is solved if any of its turns is correct. In metric
names "sample" means episode. Episodes lost to infrastructure errors are excluded and counted in `num_lost`. The speedup
of a turn with verdict suspect counts as at most 1, as it does in scores; keys `*_as_measured` have it in full.

Sources: pass@k: unbiased estimator of arXiv 2107.03374, section 2.1. fast_p: KernelBench, arXiv 2502.10517, section
3.3: fraction of episodes that are correct with a speedup above p.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.types import Episode, Group, Outcome, Turn, Verdict

__all__ = ["best_turn", "counted_speedup", "pass_at_k", "scoreboard", "wilson_interval"]


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Unbiased estimate of pass@k: 1 - C(n - correct, k) / C(n, k).

    It is the probability that at least one of k episodes, drawn without replacement from n, is solved.

    Source: arXiv 2107.03374, section 2.1, equation 1.

    Args:
        n: number of episodes of the task.
        correct: number of solved episodes, at most n.

    Raises:
        ValueError: n is below k.
    """
    if n < k:
        raise ValueError(f"pass@{k} needs at least {k} samples, there are {n}")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """95 % Wilson score interval (low, high) of a proportion `share` observed in `n` independent units.

    Source: Wilson 1927, with z = 1.959964.

    Raises:
        ZeroDivisionError: n is 0.
    """
    z = 1.959964
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def best_turn(episode: Episode) -> Turn | None:
    """The turn that represents an episode: the correct turn of highest counted speedup, else the last turn that is not
    masked, else None."""
    turns = [turn for turn in episode.turns if not turn.masked]
    correct = [turn for turn in turns if turn.correct]
    if correct:
        return max(correct, key=lambda turn: counted_speedup(turn) or 0.0)
    return turns[-1] if turns else None


def counted_speedup(turn: Turn) -> float | None:
    """Speedup of a correct turn, at most 1 if the turn is suspect; None if it was not measured."""
    if turn.speedup is None or turn.verdict is not Verdict.SUSPECT:
        return turn.speedup
    return min(turn.speedup, 1.0)


def _measured_speedup(episode: Episode) -> float | None:
    """The highest speedup of an episode's correct turns, whatever their verdict."""
    return max((turn.speedup for turn in episode.turns if turn.speedup is not None), default=None)


def scoreboard(groups: Sequence[Group], settings: EvalSettings) -> dict[str, Any]:
    """Flat results of a held-out evaluation. A value that cannot be computed is None; `reasons` has the reason.

    The interval `pass@1_ci` treats the task as the independent unit, because the episodes of one task are correlated.
    """
    tasks = [[turn for episode in group.episodes if (turn := best_turn(episode)) is not None] for group in groups]
    tasks = [turns for turns in tasks if turns]
    samples = [turn for turns in tasks for turn in turns]
    reasons: dict[str, str] = {}
    row: dict[str, Any] = {
        "num_tasks": len(tasks),
        "num_samples": len(samples),
        "num_correct": sum(turn.correct for turn in samples),
        "num_lost": sum(len(group.episodes) for group in groups) - len(samples),
    }
    for k in settings.pass_at:
        row[f"pass@{k}"] = _pass_at(tasks, k, reasons)
    if row.get("pass@1") is not None:
        row["pass@1_ci"] = list(wilson_interval(row["pass@1"], len(tasks)))
    solved = [turn for turn in samples if turn.correct]
    row["correct_rate"] = len(solved) / len(samples) if samples else None
    row["compile_rate"] = (
        statistics.fmean(t.evaluation is not None and t.evaluation.compiled for t in samples) if samples else None
    )
    row["reward_mean"] = statistics.fmean(turn.score.total for turn in samples) if samples else None
    counted = [speedup for turn in solved if (speedup := counted_speedup(turn)) is not None]
    unmeasured = _why_unmeasured(samples, len(solved), len(counted))
    episodes = [episode for group in groups for episode in group.episodes]
    measured = [speedup for episode in episodes if (speedup := _measured_speedup(episode)) is not None]
    faster = [p for p in settings.fast_thresholds if p]
    for suffix, speedups, thresholds in (
        ("", counted, settings.fast_thresholds),
        ("_as_measured", measured, faster),
    ):
        for p in thresholds:
            key = f"fast_{p:g}{suffix}"
            if not p and samples:
                row[key] = row["correct_rate"]
            elif unmeasured:
                row[key], reasons[key] = None, unmeasured
            else:
                row[key] = sum(speedup > p for speedup in speedups) / len(samples)
        key = f"geometric_mean_speedup{suffix}"
        row[key] = statistics.geometric_mean(speedups) if speedups else None
        if not speedups:
            reasons[key] = unmeasured or "no sample is correct"
    verified = [turn.verified for turn in solved if turn.verified is not None]
    if verified:
        row["hack_gap"] = sum(not held for held in verified) / len(verified)
    counts = Counter(turn.outcome for turn in samples)
    row["outcomes"] = {outcome.value: counts[outcome] for outcome in Outcome if outcome is not Outcome.INFRA_ERROR}
    row["reasons"] = reasons
    return row


def _pass_at(tasks: Sequence[Sequence[Turn]], k: int, reasons: dict[str, str]) -> float | None:
    enough = [turns for turns in tasks if len(turns) >= k]
    if len(enough) < len(tasks) or not tasks:
        reasons[f"pass@{k}"] = f"{len(tasks) - len(enough)} of {len(tasks)} tasks have fewer than {k} samples"
        return None
    return statistics.fmean(pass_at_k(len(turns), sum(t.correct for t in turns), k) for turns in enough)


def _why_unmeasured(samples: Sequence[Turn], n_solved: int, n_measured: int) -> str:
    if not samples:
        return "there are no samples"
    if n_measured < n_solved:
        return f"run time was not measured for {n_solved - n_measured} of {n_solved} correct samples"
    return ""
