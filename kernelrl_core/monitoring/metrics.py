"""Metrics of a step. `docs/metrics.md` defines every name.

All except `time/*` and `cost/*` are functions of the samples in canonical order, so a resumed run repeats them exactly.
A metric without a value, such as a speedup that was not measured, has no key in the row.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from kernelrl_core.algorithms.credit import Credit
from kernelrl_core.monitoring.alarms import FINDING_PREFIX
from kernelrl_core.types import CHECKER_FAILED, Episode, Group, Outcome, Severity, Turn, Verdict

__all__ = ["SeenKernels", "batch_metrics", "credit_metrics", "rollout_metrics", "step_metrics", "time_metrics"]


class SeenKernels:
    """Kernels evaluated earlier in the run, in canonical order. They determine the hit rate of an ideal cache."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def share(self, turns: Iterable[Turn]) -> float | None:
        """Share of the evaluated kernels of `turns` that were seen before, and add them; None without such kernels."""
        evaluated = [turn for turn in turns if turn.evaluation is not None and turn.candidate is not None]
        return self.share_of([(t.task.sha256, t.candidate.sha256) for t in evaluated if t.candidate is not None])

    def share_of(self, keys: Sequence[tuple[str, str]]) -> float | None:
        """`share` for (task hash, kernel hash) pairs in canonical order."""
        repeated = 0
        for key in keys:
            repeated += key in self._seen
            self._seen.add(key)
        return repeated / len(keys) if keys else None


def step_metrics(
    step: int, n_steps: int, groups: Sequence[Group], batch: Sequence[Credit], learning_rate: float
) -> dict[str, Any]:
    """All metrics of a step that depend only on its samples and credits."""
    row: dict[str, Any] = {"step": step}
    return row | batch_metrics(step, n_steps, groups, learning_rate) | rollout_metrics(groups) | credit_metrics(batch)


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Metrics of the samples of a step: scores, outcomes, findings, tokens, turns. Masked turns count only in rates of
    outcomes and infrastructure errors."""
    everything = [turn for group in groups for turn in group.turns]
    turns = [turn for turn in everything if not turn.masked]
    row: dict[str, float] = {}
    scores = [turn.score.total for turn in turns]
    row |= _spread("reward", scores)
    for name in sorted({name for turn in turns for name in turn.score.parts}):
        row |= _mean(f"reward_part/{name}", [turn.score.parts.get(name, 0.0) for turn in turns])
    row |= _quality("kernel", turns)
    row |= _mean("kernel/cheat_rate", [_cheats(turn) for turn in turns])
    row |= _mean("kernel/failure_rate", [not turn.correct for turn in turns])
    for outcome in Outcome:
        row |= _mean(f"outcome/{outcome.value}", [turn.outcome is outcome for turn in everything])
    row |= _mean("verdict/suspect", [turn.verdict is Verdict.SUSPECT for turn in turns])
    row |= _finding_rates(turns)
    if unchecked := [any(found.rule == CHECKER_FAILED for found in turn.findings) for turn in turns]:
        row |= {"checker_failed_rate": statistics.fmean(unchecked)} if any(unchecked) else {}
    verified = [turn.verified for turn in turns if turn.verified is not None]
    row |= _mean("verify/hack_gap", [not held for held in verified])
    if verified:
        row["verify/samples"] = len(verified)
    row |= _mean("infra_rate", [turn.masked for turn in everything])
    for boundary in sorted({turn.lost_at for turn in everything if turn.lost_at}):
        row |= _mean(f"infra/{boundary}", [turn.lost_at == boundary for turn in everything])
    row |= _mean("truncated_rate", [turn.reply.stop_reason == "length" for turn in turns])
    row |= _token_metrics(turns)
    row |= _retrieval_metrics(turns)
    row |= _multiturn_metrics([episode for group in groups for episode in group.episodes], turns)
    for level in sorted({turn.task.level for turn in turns if turn.task.level is not None}):
        of_level = [turn for turn in turns if turn.task.level == level]
        row |= _mean(f"level_{level}/reward_mean", [turn.score.total for turn in of_level])
        row |= _mean(f"level_{level}/compile_rate", [_compiled(turn) for turn in of_level])
        row |= _mean(f"level_{level}/correct_rate", [turn.correct for turn in of_level])
    return row


def credit_metrics(batch: Sequence[Credit]) -> dict[str, float]:
    """Metrics of returns, advantages, and trained, filtered and masked training samples."""
    valid = [credit for credit in batch if not credit.masked]
    trained = [credit for credit in valid if not credit.exclusion_reason]
    row = _spread("reward/discounted", [c.return_ for c in valid if c.return_ is not None], separator="_")
    row |= _spread("advantage", [c.advantage for c in trained if c.advantage is not None])
    groups: dict[int, bool] = {}
    for credit in valid:
        index = credit.turn.id.task_index
        groups[index] = groups.get(index, True) and credit.advantage == 0
    row |= _mean("uniform_group_frac", list(groups.values()))
    if any(credit.turn.staleness for credit in batch):
        row |= _mean("train/staleness_mean", [credit.turn.staleness for credit in trained])
        row["train/staleness_max"] = max((credit.turn.staleness for credit in trained), default=0)
    row["batch/trained_samples"] = len(trained)
    row["batch/filtered_samples"] = len(valid) - len(trained)
    row["batch/masked_samples"] = len(batch) - len(valid)
    return row


def batch_metrics(step: int, n_steps: int, groups: Sequence[Group], learning_rate: float) -> dict[str, float]:
    """Progress of the run, learning rate, and size of the step."""
    episodes = [episode for group in groups for episode in group.episodes]
    return {
        "progress/batch": step,
        "progress/done_frac": (step + 1) / n_steps,
        "optim/lr": learning_rate,
        "batch/num_groups": len(groups),
        "batch/num_trajectories": len(episodes),
        "batch/total_steps": sum(len(episode.turns) for episode in episodes),
    }


def time_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Seconds of sampling and evaluating single turns. Turns overlap, so the seconds do not add up to the step's."""
    turns = [turn for group in groups for turn in group.turns]
    row: dict[str, float] = {}
    for name, key in (("sample", "sample"), ("eval", "evaluate")):
        seconds = sorted(turn.seconds[key] for turn in turns if key in turn.seconds)
        if seconds:
            row[f"time/{name}_mean"] = statistics.fmean(seconds)
            row[f"time/{name}_p50"] = _percentile(seconds, 50)
            row[f"time/{name}_p95"] = _percentile(seconds, 95)
            row[f"time/{name}_max"] = seconds[-1]
    return row


def _multiturn_metrics(episodes: Sequence[Episode], turns: Sequence[Turn]) -> dict[str, float]:
    row: dict[str, float] = {}
    played = [[turn for turn in episode.turns if not turn.masked] for episode in episodes]
    played = [episode for episode in played if episode]
    row |= _mean("multiturn/raw_score_mean", [turn.score.total for turn in turns])
    row |= _mean("multiturn/success_rate", [any(turn.correct for turn in episode) for episode in played])
    row |= _mean("multiturn/avg_turns", [len(episode) for episode in played])
    row |= _quality("multiturn", turns)
    row |= _mean("multiturn/failure_rate", [not turn.correct for turn in turns])
    best = [max(speedups) for episode in played if (speedups := _speedups(episode))]
    row |= _mean("multiturn/best_speedup_mean", best)
    if best:
        row["multiturn/best_speedup_max"] = max(best)
    first = [next((i for i, turn in enumerate(episode, 1) if turn.correct), 0) for episode in played]
    row |= _mean("multiturn/turns_to_solve", [number for number in first if number])
    if played:
        row["multiturn/max_correct_per_trajectory"] = max(sum(t.correct for t in episode) for episode in played)
    for number in range(max((len(episode) for episode in played), default=0)):
        at_turn = [turn for turn in turns if turn.id.turn == number]
        name = f"multiturn/turn_{number}"
        row |= _mean(f"{name}/compile_rate", [_compiled(turn) for turn in at_turn])
        row |= _mean(f"{name}/correct_rate", [turn.correct for turn in at_turn])
        scores = [turn.score.total for turn in at_turn]
        row |= _mean(f"{name}/step_score_mean", scores)
        if scores:
            row[f"{name}/step_score_std"] = statistics.pstdev(scores)
    return row


def _finding_rates(turns: Sequence[Turn]) -> dict[str, float]:
    """Share of the samples with each finding of severity suspect or hack."""
    rules = [{found.rule for found in turn.findings if found.severity is not Severity.NOTE} for turn in turns]
    return {
        f"{FINDING_PREFIX}{name}": sum(name in own for own in rules) / len(turns)
        for name in sorted(set().union(*rules))
    }


def _token_metrics(turns: Sequence[Turn]) -> dict[str, float]:
    prompts = [len(turn.prompt.tokens) for turn in turns]
    replies = [len(turn.reply.tokens) for turn in turns]
    row = {"tokens/prompt": float(sum(prompts)), "tokens/reply": float(sum(replies))}
    row |= _mean("tokens/prompt_mean", prompts) | _mean("tokens/reply_mean", replies)
    if turns:
        row["tokens/prompt_max"], row["tokens/reply_max"] = float(max(prompts)), float(max(replies))
    return row


def _retrieval_metrics(turns: Sequence[Turn]) -> dict[str, float]:
    """Means over the prompts for which examples were retrieved."""
    turns = [turn for turn in turns if turn.examples or turn.excluded_examples]
    shown = [[example for example in turn.examples if example.id] for turn in turns]
    similarity = [one.similarity for examples in shown for one in examples if one.similarity is not None]
    row = _mean("retrieval/shown", [len(examples) for examples in shown]) | _mean("retrieval/similarity", similarity)
    row |= _mean("retrieval/fallback", [len(turn.examples) > len(own) for turn, own in zip(turns, shown, strict=True)])
    for reason in ("leak_task", "leak_held_out", "forbidden", "length"):
        counts = [sum(example.reason == reason for example in turn.excluded_examples) for turn in turns]
        row |= _mean(f"retrieval/excluded_{reason}", counts)
    return row


def _quality(prefix: str, turns: Sequence[Turn]) -> dict[str, float]:
    return (
        _mean(f"{prefix}/format_rate", [turn.outcome is not Outcome.FORMAT_ERROR for turn in turns])
        | _mean(f"{prefix}/compile_rate", [_compiled(turn) for turn in turns])
        | _mean(f"{prefix}/correct_rate", [turn.correct for turn in turns])
    )


def _compiled(turn: Turn) -> bool:
    return turn.evaluation is not None and turn.evaluation.compiled


def _cheats(turn: Turn) -> bool:
    return turn.outcome in (Outcome.HACKED, Outcome.REJECTED) or turn.verdict is Verdict.HACK


def _speedups(turns: Sequence[Turn]) -> list[float]:
    return [turn.speedup for turn in turns if turn.speedup is not None]


def _mean(name: str, values: Sequence[float]) -> dict[str, float]:
    return {name: statistics.fmean(values)} if values else {}


def _spread(prefix: str, values: Sequence[float], *, separator: str = "/") -> dict[str, float]:
    if not values:
        return {}
    return {
        f"{prefix}{separator}mean": statistics.fmean(values),
        f"{prefix}{separator}std": statistics.pstdev(values),
        f"{prefix}{separator}min": min(values),
        f"{prefix}{separator}max": max(values),
    }


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Nearest-rank percentile, which is always one of the values."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]
