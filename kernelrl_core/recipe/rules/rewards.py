"""Rules about rewards: their prerequisites, and kernels that would score more than better ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import attrs

from kernelrl_core.errors import suggestion
from kernelrl_core.interfaces.rewards import RewardBounds
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.rules.components import made
from kernelrl_core.recipe.rules.contradiction import Contradiction
from kernelrl_core.recipe.schema import (
    CurriculumSettings,
    EpisodeSettings,
    RewardUse,
    SamplingOptions,
    SpeedupStop,
    VerdictSettings,
)
from kernelrl_core.types import EvaluationSettings

__all__ = [
    "correctness_gap",
    "curriculum_stages",
    "measured_times",
    "needed_settings",
    "reply_lengths",
    "reward_code",
    "reward_of_a_hack",
]


def measured_times(
    rewards: Mapping[str, RewardUse],
    evaluation: EvaluationSettings,
    episode: EpisodeSettings,
) -> Iterator[Contradiction]:
    """Keys that need run times, which are not measured."""
    if evaluation.timing:
        return
    hint = "set evaluation.timing: true, or remove it"
    for name, use in rewards.items():
        if use.weight and use.options.needs_timing():
            yield Contradiction(
                ("rewards", name), f"{use.use!r} requires run times, but evaluation.timing is false", hint
            )
    if isinstance(episode.stop, SpeedupStop):
        message = "no speedup is measured, because evaluation.timing is false"
        yield Contradiction(("episode", "stop"), message, hint)


def needed_settings(rewards: Mapping[str, RewardUse], evaluation: EvaluationSettings) -> Iterator[Contradiction]:
    """Rewards that have no effect with these evaluation settings."""
    for name, use in rewards.items():
        for key, wanted in (use.options.needs_settings() if use.weight else {}).items():
            if getattr(evaluation, key) != wanted:
                written = str(wanted).lower()
                message = f"{use.use!r} has no effect unless evaluation.{key} is {written}"
                yield Contradiction(("rewards", name), message, f"set evaluation.{key}: {written}, or remove it")


def reply_lengths(rewards: Mapping[str, RewardUse], sampling: SamplingOptions) -> Iterator[Contradiction]:
    """Rewards that act on longer replies than are sampled."""
    longest = sampling.extend.max_tokens if sampling.extend is not None else sampling.max_tokens
    for name, use in rewards.items():
        needed = use.options.needs_reply_tokens() if use.weight else 0
        if needed > longest:
            message = f"{use.use!r} has no effect on replies of fewer than {needed:,} tokens"
            hint = f"lower its options to sampling.max_tokens ({longest:,}), or remove it"
            yield Contradiction(("rewards", name), message, hint)


def reward_of_a_hack(rewards: Mapping[str, RewardUse], verdicts: VerdictSettings) -> Iterator[Contradiction]:
    """A hack or a suspect kernel that would score more than a wrong honest kernel."""
    try:
        bounds = [(use.weight, use.options.bounds()) for use in rewards.values()]
        # Lowest score of a wrong kernel without findings, from the components that distinguish wrong from correct.
        failure = sum(weight * bound.low for weight, bound in bounds if weight > 0 and bound.gap > 0)
    except Exception:  # reported by `correctness_gap`
        return
    if verdicts.hack_reward > failure:
        message = f"a hack would score {verdicts.hack_reward:g}, more than a wrong honest kernel ({failure:g})"
        yield Contradiction(("verdicts", "hack_reward"), message, f"set it to {failure:g} or below")
    if verdicts.suspect == "zero" and failure < 0:
        message = f"a wrong kernel with verdict suspect would score 0, more than without findings ({failure:g})"
        yield Contradiction(("verdicts", "suspect"), message, "set it to cap, which counts its speedup as at most 1")


def correctness_gap(rewards: Mapping[str, RewardUse], registry: Registry) -> Iterator[Contradiction]:
    """A wrong kernel that could score as much as a correct one."""
    if not rewards:
        yield Contradiction(
            ("rewards",), "no reward is configured", "add at least one, such as correct: {use: correctness}"
        )
        return
    gaps = {}
    for name, use in rewards.items():
        try:
            gaps[name] = _weighted_gap(use)
        except Exception as error:  # plugin code
            plugin = registry.plugin_of("rewards", use.use).name
            cause = f"{type(error).__name__}: {error}"
            message = f"plugin {plugin}: {use.use!r} does not declare bounds: {cause}"
            fix = f"in the plugin, return a RewardBounds from bounds(); kernelrl plugins check {plugin} tests it"
            yield Contradiction(("rewards", name), message, fix)
    if len(gaps) == len(rewards) and not sum(gaps.values()) > 1e-12:
        listed = ", ".join(f"{name} {gap:+g}" for name, gap in gaps.items())
        yield Contradiction(
            ("rewards",),
            f"a wrong kernel could score as much as a correct one: least score differences for correctness: {listed}",
            "raise the weight of a reward for correctness, or lower the weights of rewards that ignore correctness",
        )


def reward_code(rewards: Mapping[str, RewardUse], registry: Registry) -> Iterator[Contradiction]:
    """Mistakes in the code of rewards."""
    for name, use in rewards.items():
        try:
            use.options.bounds()
        except Exception:  # reported by `correctness_gap`
            continue
        _, mistake = made("rewards", ("rewards", name), use, registry)
        if mistake is not None:
            yield mistake


def curriculum_stages(
    rewards: Mapping[str, RewardUse],
    curriculum: CurriculumSettings | None,
    registry: Registry,
) -> Iterator[Contradiction]:
    """Stages that never end or never start, and weights of rewards that do not exist."""
    if curriculum is None:
        return
    stages = curriculum.stages
    if not stages and curriculum.difficulty is None:
        yield Contradiction(("curriculum",), "neither stages nor difficulty is set", "set one, or set it to null")
    for index, stage in enumerate(stages):
        path = ("curriculum", "stages", str(index))
        last, ends = index + 1 == len(stages), stage.until is not None or stage.max_steps is not None
        if not last and not ends:
            yield Contradiction(path, "the stage never ends, so the next one never starts", "set until or max_steps")
        if last and ends:
            yield Contradiction(path, "the last stage lasts until the end of the run", "remove until and max_steps")
        for name in stage.weights:
            if name not in rewards:
                message = f"no reward {name!r}"
                yield Contradiction((*path, "weights", name), message, suggestion(name, rewards))
        weighted = {
            name: attrs.evolve(use, weight=stage.weights.get(name, use.weight)) for name, use in rewards.items()
        }
        if stage.weights and not any(name not in rewards for name in stage.weights):
            for found in correctness_gap(weighted, registry):
                yield attrs.evolve(found, path=(*path, "weights"))


def _weighted_gap(use: RewardUse) -> float:
    bounds: RewardBounds = use.options.bounds()
    if use.weight == 0:
        return 0.0
    # With a negative weight the worst case is the whole range of the component.
    gap = use.weight * (bounds.gap if use.weight > 0 else bounds.high - bounds.low)
    if math.isnan(gap):
        raise ValueError("a bound is not a number")
    return float(gap)
