"""Range of every number of a recipe in which it acts. A value outside of it gets a warning, or is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kernelrl_core.recipe.merge import Merged
from kernelrl_core.recipe.problems import Problem
from kernelrl_core.recipe.rules.contradiction import Contradiction
from kernelrl_core.recipe.schema import TrainSettings

__all__ = ["RANGES", "Range", "number_limits", "numbers_out_of_range", "range_of"]


@attrs.frozen
class Range:
    """Values with which a number acts. 0 is accepted wherever the type accepts it: it switches off, or has a rule."""

    low: float
    """Least absolute value."""
    high: float
    """Greatest absolute value."""
    below: str = ""
    """Effect of a smaller value."""
    above: str = ""
    """Effect of a greater value."""

    def mistake(self, value: float) -> str:
        """A sentence about a value outside of the range; empty for another one."""
        size = abs(value)
        if value == 0 or self.low <= size <= self.high:
            return ""
        effect = self.below if size < self.low else self.above
        return f"{value:g} is outside of {self.low:g} to {self.high:g}: {effect}"


_SHARE = Range(1e-6, 1, "acts as 0")
_TOKENS = Range(8, 1e7, "no kernel fits into so few tokens", "no policy has such a context")
_COUNT = Range(1, 1e6, above="no run has so many")
_TRIALS = Range(1, 1e4, above="an evaluation would take hours")
_STEPS = Range(1, 1e9, above="no run has so many steps")
_TOLERANCE = Range(1e-12, 1, "no rounding error is so small", "wrong outputs are accepted as correct")
_TEMPERATURE = Range(0.01, 5, "acts as 0, which takes the most probable token", "tokens are drawn nearly at random")
_PRICE = Range(1e-6, 1e6, "counts as free", "no service has such a price")
_SPEEDUP = Range(0.01, 1e4, "every correct kernel is faster", "no kernel is so fast")
_TIME_LIMIT = Range(1, 1e6, "no evaluation ends within it", "acts as no limit")
_MEMORY = Range(64, 1e8, above="no machine has so much memory")

RANGES: Mapping[str, Range] = {
    "seed": Range(0, math.inf),
    "evaluation.trials": _TRIALS,
    "evaluation.atol": _TOLERANCE,
    "evaluation.rtol": _TOLERANCE,
    "evaluation.timeout_s": _TIME_LIMIT,
    "evaluation.build_timeout_s": _TIME_LIMIT,
    "evaluation.build_memory_mib": _MEMORY,
    "evaluation.memory_mib": _MEMORY,
    "evaluation.timing_trials": Range(1, 1e5, above="an evaluation would take hours"),
    "evaluation.excessive_speedup": Range(1, 1e6, "every correct kernel gets the note", "no kernel gets the note"),
    "evaluation.library_share": Range(1e-6, 100, "acts as 0", "no kernel is rejected by it"),
    "prompt.max_tokens": _TOKENS,
    "sampling.max_tokens": _TOKENS,
    "sampling.temperature": _TEMPERATURE,
    "sampling.top_p": Range(0.01, 1, "takes the most probable token"),
    "sampling.top_k": Range(1, 1e6, above="acts as -1: no vocabulary is so large"),
    "sampling.extend.after_step": _STEPS,
    "sampling.extend.max_tokens": _TOKENS,
    "sampling.concurrency": Range(1, 1e5, above="acts as null: no limit"),
    "episode.turns": Range(1, 1e3, above="no context holds so many turns"),
    "episode.stop.speedup": _SPEEDUP,
    "history.keep.last": Range(1, 1e3, above="acts as all"),
    "history.keep.best": Range(1, 1e3, above="acts as all"),
    "returns.gamma": _SHARE,
    "rewards.*.weight": Range(1e-6, 1e6, "acts as 0", "hides every other reward"),
    "retriever.k": Range(1, 100, above="no prompt holds so many examples"),
    "verdicts.hack_reward": Range(1e-6, 1e6, "acts as 0", "hides every other reward"),
    "verify.train": _SHARE,
    "verify.eval": _SHARE,
    "verify.trials": _TRIALS,
    "train.tasks_per_step": _COUNT,
    "train.group_size": _COUNT,
    "train.steps": _STEPS,
    "train.epochs": Range(1e-6, 1e6, "trains one batch", "no run has so many passes"),
    "train.learning_rate": Range(1e-10, 0.1, "changes no weight", "the weights diverge"),
    "train.warmup_ratio": _SHARE,
    "train.learning_rate_floor": _SHARE,
    "train.substeps": _COUNT,
    "train.clip_low": Range(1e-4, 1, "clips every ratio other than 1"),
    "train.clip_high": Range(1e-4, 100, "clips every ratio other than 1", "clips nothing"),
    "train.kl": Range(1e-8, 100, "acts as 0", "hides the rewards"),
    "train.mismatch.sequence_low": Range(1e-6, 1, "filters nothing", "filters replies without a mismatch"),
    "train.mismatch.sequence_high": Range(1, 1e6, "filters replies without a mismatch", "filters nothing"),
    "train.mismatch.token_min": Range(1e-20, 0.99, "filters nothing", "filters replies without a mismatch"),
    "train.importance_cap": Range(0.1, 1e4, "truncates every weight", "truncates no weight"),
    "train.coverage_rejection.threshold": Range(1e-6, 0.99, "acts as 0", "filters every correct kernel"),
    "train.coverage_rejection.ramp": Range(1e-6, 1, "acts as 0", "filters most correct kernels"),
    "train.length_norm": Range(1, 1e7, above="no reply is so long"),
    "train.max_grad_norm": Range(1e-6, 1e6, "the optimizer's eps dominates", "clips nothing"),
    "train.beta1": _SHARE,
    "train.beta2": _SHARE,
    "train.eps": Range(1e-20, 0.1, "acts as 0", "it dominates the gradient"),
    "train.weight_decay": Range(1e-9, 10, "acts as 0", "the weights vanish"),
    "train.min_group_size": _COUNT,
    "train.refill": Range(1, 100, above="a step would sample all tasks"),
    "train.staleness": Range(1, 100, above="no ratio is close to 1 after so many updates"),
    "train.checkpoint_every": _STEPS,
    "train.keep_checkpoints": Range(1, 1e6, above="acts as null: all"),
    "curriculum.stages.*.levels.*": Range(1, 1e6),
    "curriculum.stages.*.until.above": Range(1e-9, 1e6, "acts as 0", "no metric reaches it"),
    "curriculum.stages.*.until.over": Range(1, 1e6, above="no stage has so many steps"),
    "curriculum.stages.*.max_steps": _STEPS,
    "curriculum.stages.*.atol": _TOLERANCE,
    "curriculum.stages.*.rtol": _TOLERANCE,
    "curriculum.stages.*.trials": _TRIALS,
    "curriculum.stages.*.weights.*": Range(1e-6, 1e6, "acts as 0", "hides every other reward"),
    "curriculum.difficulty.groups": Range(1, 1e4, above="no task has so many groups"),
    "curriculum.difficulty.sharpness": Range(0.01, 100, "acts as no selection", "draws the same tasks in every step"),
    "eval.every": _STEPS,
    "eval.samples": Range(1, 1e5, above="an evaluation would take days"),
    "eval.temperature": _TEMPERATURE,
    **dict.fromkeys(
        ("eval.search.width", "eval.search.islands", "eval.search.parents"),
        Range(1, 1e4, above="no search has so many kernels"),
    ),
    "eval.search.migrate_every": Range(1, 1e4, above="no kernel moves between islands"),
    "eval.max_tasks": Range(1, 1e6, above="acts as null: all"),
    "eval.pass_at.*": Range(1, 1e5, above="no task has so many episodes"),
    "eval.fast_thresholds.*": Range(0.01, 1e4, "acts as 0", "no kernel is so fast"),
    "cost.budget_usd": Range(1e-6, 1e9, "the first reply ends the run", "acts as no limit"),
    "cost.prices.prompt": _PRICE,
    "cost.prices.reply": _PRICE,
    "cost.prices.train": _PRICE,
    "cost.prices.gpu_hour": _PRICE,
    "cost.gpu_seconds_per_evaluation": Range(1e-6, 1e5, "counts as 0", "no evaluation takes so long"),
}
"""Key -> range. `*` is the name of a component, or the index of a list. Options of components have their own
checks."""


def range_of(path: tuple[str, ...]) -> Range | None:
    """The range of a key; None if its value is not a number of the core."""
    for dotted, found in RANGES.items():
        pattern = dotted.split(".")
        if len(pattern) == len(path) and all(part in ("*", key) for part, key in zip(pattern, path, strict=True)):
            return found
    return None


def number_limits(train: TrainSettings) -> Iterator[Contradiction]:
    """Numbers with which a run would end with an error, or never."""
    if train.learning_rate > 100:
        message = f"{train.learning_rate:g} is above 100: Adam changes every weight by about this number in a step"
        yield Contradiction(("train", "learning_rate"), message, "usual are 1e-6 (all weights) to 1e-4 (LoRA)")
    for key in ("steps", "epochs"):
        value = getattr(train, key)
        if value is not None and value > RANGES[f"train.{key}"].high:
            yield Contradiction(("train", key), f"{value:g} is more than a run can make")


def numbers_out_of_range(resolved: Mapping[str, Any], merged: Merged) -> Iterator[Problem]:
    """A warning for each number of the recipe that is outside of its range.

    Args:
        resolved: the recipe as plain data.
    """
    for path, value in _numbers(resolved):
        found = range_of(path)
        mistake = found.mistake(value) if found is not None else ""
        if mistake:
            yield Problem(merged.origin(path), ".".join(path), mistake)


def _numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _numbers(item, (*path, str(index)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value
