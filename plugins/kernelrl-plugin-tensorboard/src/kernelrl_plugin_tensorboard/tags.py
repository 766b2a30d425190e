"""Tags of TensorBoard for the metrics of a run. A metric without a tag here keeps its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["CHARTS", "COUNTS", "DISTRIBUTIONS", "PATTERNS", "STEP", "TAGS", "tagged"]

STEP = "Progress/Step"
"""Present in every record of a step, and in no other record."""

TAGS = {
    "step": STEP,
    "progress/done_frac": "Progress/CompletionFraction",
    "optim/lr": "Optimizer/LearningRate",
    "batch/num_groups": "Batch/NumGroups",
    "batch/num_trajectories": "Batch/NumTrajectories",
    "reward/mean": "Reward/Mean",
    "reward/std": "Reward/Std",
    "reward/min": "Reward/Min",
    "reward/max": "Reward/Max",
    "advantage/mean": "Advantage/Mean",
    "advantage/std": "Advantage/Std",
    "advantage/min": "Advantage/Min",
    "advantage/max": "Advantage/Max",
    "kernel/format_rate": "Kernel/FormatRate",
    "kernel/compile_rate": "Kernel/CompileRate",
    "kernel/correct_rate": "Kernel/CorrectRate",
    "kernel/cheat_rate": "Kernel/CheatRate",
    "kernel/failure_rate": "Kernel/FailureRate",
    "multiturn/raw_score_mean": "MultiTurn/RawScoreMean",
    "multiturn/success_rate": "MultiTurn/SuccessRate",
    "multiturn/avg_turns": "MultiTurn/AvgTurns",
    "multiturn/best_speedup_mean": "MultiTurn/BestSpeedupMean",
    "time/total": "Timing/Total",
    "time/rollout": "Timing/Rollout",
    "time/train": "Timing/Train",
    "time/save_checkpoint": "Timing/Save_Checkpoint",
    "eval/pass@1": "Eval/Pass@1",
    "eval/pass@5": "Eval/Pass@5",
    "eval/compile_rate": "Eval/CompileRate",
    "eval/correct_rate": "Eval/CorrectRate",
    "eval/fast_1": "Eval/Fast1x",
    "eval/fast_2": "Eval/Fast2x",
    "eval/geometric_mean_speedup": "Eval/GeometricMeanSpeedup",
}
"""Metric -> tag."""

PATTERNS = {
    "reward_part/*": "RewardComponents/*",
    "level_*/reward_mean": "PerLevel/Level*/RewardMean",
    "level_*/compile_rate": "PerLevel/Level*/CompileRate",
    "level_*/correct_rate": "PerLevel/Level*/CorrectRate",
    **{
        metric.replace("eval/", "eval/level_*/"): tag.replace("Eval/", "Eval/Level*/")
        for metric, tag in TAGS.items()
        if metric.startswith("eval/")
    },
}
"""Metric -> tag, where `*` is the same text in both."""

COUNTS = {
    "kernel/format_rate": "Counts/format_ok",
    "kernel/compile_rate": "Counts/compiled",
    "kernel/correct_rate": "Counts/correct",
}
"""Share of the valid samples -> tag of their number."""

DISTRIBUTIONS = {
    "reward": "Distributions/Rewards",
    "speedup": "Distributions/Speedups",
    "advantage": "Distributions/Advantages",
}
"""Key of a credit row -> tag of its histogram."""

CHARTS = {
    "Reward/Summary": ("Reward/Mean", "Reward/Min", "Reward/Max"),
    "Kernel/QualityRates": ("Kernel/FormatRate", "Kernel/CompileRate", "Kernel/CorrectRate"),
    "Timing/Breakdown": ("time/in_.*",),
    "Eval/QualityOverview": ("Eval/CompileRate", "Eval/CorrectRate", "Eval/Fast1x", "Eval/Fast2x"),
}
"""Chart of several lines on the page "Custom Scalars" -> regular expressions of their tags."""

_REGEXES = [
    (re.compile(re.escape(metric).replace(r"\*", "(.+)")), tag.replace("*", r"\1")) for metric, tag in PATTERNS.items()
]


def tagged(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Tag -> value of every metric that has a value."""
    numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
    found = {_tag(name): value for name, value in numbers.items()}
    valid = numbers.get("batch/total_steps", 0.0) * (1 - numbers.get("infra_rate", 0.0))
    if valid:
        found |= {tag: float(round(numbers[rate] * valid)) for rate, tag in COUNTS.items() if rate in numbers}
    return found


def _tag(metric: str) -> str:
    if metric in TAGS:
        return TAGS[metric]
    for regex, tag in _REGEXES:
        if match := regex.fullmatch(metric):
            return match.expand(tag)
    return metric
