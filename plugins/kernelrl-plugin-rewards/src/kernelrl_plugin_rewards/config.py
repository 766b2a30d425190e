"""Options of the reward components, and the properties that the core checks before a run.

`RewardBounds.gap` is a lower bound of a component's score for any correct kernel minus its score for any incorrect one.
It is not negative for components that depend on the outcome. Components that depend only on the text can have a
negative gap: minus the largest difference between two replies with code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import attrs

from kernelrl_core.api.config import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from kernelrl_core.api.rewards import RewardBounds, RewardConfig

__all__ = [
    "CompileConfig",
    "CorrectnessConfig",
    "CoverageConfig",
    "CudaL1Config",
    "FormatConfig",
    "LengthConfig",
    "MilestoneConfig",
    "OverlongConfig",
    "SpeedupConfig",
    "ThinkingConfig",
]


@attrs.frozen
class FormatConfig(RewardConfig):
    """Options of `format`."""

    penalty: float = 0.0
    """Score of a reply without usable code; 0 or below."""

    def problems(self) -> Iterable[str]:
        if self.penalty > 0:
            yield f"penalty must be 0 or below, not {self.penalty:g}: a reply without code must not score above 0"

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=self.penalty, high=1.0, gap=0.0)


@attrs.frozen
class CompileConfig(RewardConfig):
    """Options of `compile`: none."""

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=0.0, high=1.0, gap=0.0)


@attrs.frozen
class CorrectnessConfig(RewardConfig):
    """Options of `correctness`."""

    mode: Literal["all", "partial"] = "all"
    """`all`: only a correct kernel has a score; `partial`: an incorrect one is scored by its share of passed trials."""
    partial_share: Fraction = Fraction(0.5)
    """Mode `partial`: score of an incorrect kernel if all its trials passed; below 1, so that correct scores higher."""

    def problems(self) -> Iterable[str]:
        if self.partial_share >= 1:
            yield f"partial_share must be below 1, not {self.partial_share:g}: correct must score above incorrect"

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=0.0, high=1.0, gap=1.0 - (self.partial_share if self.mode == "partial" else 0.0))


@attrs.frozen
class SpeedupConfig(RewardConfig):
    """Options of `speedup`."""

    curve: Literal["linear", "log2"] = "linear"
    """`linear`: scale * (speedup - baseline); `log2`: scale * log2(speedup / baseline). Both clamped to 0 and `cap`."""
    baseline: NonNegativeFloat | None = None
    """Speedup at which the score is 0; null: 0 for `linear`, 1 for `log2`."""
    scale: PositiveFloat = PositiveFloat(1.0)
    """Factor before the cap."""
    cap: PositiveFloat | None = PositiveFloat(10.0)
    """Maximum score; null: no maximum."""

    def problems(self) -> Iterable[str]:
        if self.curve == "log2" and self.baseline == 0:
            yield "curve 'log2' needs a baseline above 0, such as 1"

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=0.0, high=math.inf if self.cap is None else self.cap, gap=0.0)

    def needs_timing(self) -> bool:
        return True


@attrs.frozen
class MilestoneConfig(RewardConfig):
    """Options of `milestone`."""

    failed: float = -1.0
    """Score of a kernel that is not correct."""
    correct: float = 1.0
    """Score of a correct kernel."""
    faster_than_eager: float = 2.0
    """Score of a correct kernel that is faster than eager PyTorch by more than `margin`."""
    faster_than_both: float = 3.0
    """Score of a correct kernel that is also faster than `torch.compile` by more than `margin`."""
    margin: Fraction = Fraction(0.05)
    """Required speedup above 1: 0.05 requires a speedup above 1.05."""

    def problems(self) -> Iterable[str]:
        ladder = (self.failed, self.correct, self.faster_than_eager, self.faster_than_both)
        if list(ladder) != sorted(ladder) or self.failed == self.correct:
            yield "the scores must rise: failed < correct <= faster_than_eager <= faster_than_both"

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=self.failed, high=self.faster_than_both, gap=self.correct - self.failed)

    def needs_timing(self) -> bool:
        return True

    def needs_settings(self) -> dict[str, object]:
        """`torch.compile` as the baseline: then the speedups over both it and eager PyTorch are measured."""
        return {"baseline": "compile"}


@attrs.frozen
class CoverageConfig(RewardConfig):
    """Options of `coverage`: none."""

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=0.0, high=1.0, gap=0.0)

    def needs_timing(self) -> bool:
        return True


@attrs.frozen
class CudaL1Config(RewardConfig):
    """Options of `cuda_l1`."""

    digits: NonNegativeInt = NonNegativeInt(2)
    """Decimals of the speedup; further ones are truncated towards 1."""
    max_spread: PositiveFloat = PositiveFloat(0.1)
    """Maximum width of the 95 % confidence interval, relative to the speedup; a wider one counts as noise, and the
    speedup as 1 at most."""
    cap: PositiveFloat | None = None
    """Maximum score; null: no maximum."""

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=0.0, high=math.inf if self.cap is None else self.cap, gap=0.0)

    def needs_timing(self) -> bool:
        return True


@attrs.frozen
class ThinkingConfig(RewardConfig):
    """Options of `thinking`. Lengths are in characters."""

    full: NonNegativeInt = NonNegativeInt(2000)
    """Thinking of 1 to this many characters scores 1."""
    long: PositiveInt = PositiveInt(4000)
    """Length at which the score has decreased to `beyond`, linearly from `full`."""
    without: Fraction = Fraction(0.5)
    """Score of a reply with code and no thinking."""
    beyond: Fraction = Fraction(0.7)
    """Score of thinking of `long` characters or more."""

    def problems(self) -> Iterable[str]:
        if self.long <= self.full:
            yield f"long ({self.long}) must be above full ({self.full})"

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=0.0, high=1.0, gap=min(self.without, self.beyond) - 1.0)


@attrs.frozen
class LengthConfig(RewardConfig):
    """Options of `length`. Lengths are in characters of the extracted source."""

    full: NonNegativeInt = NonNegativeInt(500)
    """Sources up to this length score 1."""
    none: PositiveInt = PositiveInt(8000)
    """Sources of this length or more score 0; the score decreases linearly from `full`."""

    def problems(self) -> Iterable[str]:
        if self.none <= self.full:
            yield f"none ({self.none}) must be above full ({self.full})"

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=0.0, high=1.0, gap=-1.0)


@attrs.frozen
class OverlongConfig(RewardConfig):
    """Options of `overlong`. Lengths are in tokens of the reply."""

    limit: PositiveInt = PositiveInt(20_480)
    """Length at which the score is -1. Set it to `sampling.max_tokens` or less."""
    buffer: PositiveInt = PositiveInt(4_096)
    """Number of tokens below the limit in which the score falls linearly from 0 to -1."""

    def problems(self) -> Iterable[str]:
        if self.buffer > self.limit:
            yield f"buffer ({self.buffer}) must not be above limit ({self.limit})"

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=-1.0, high=0.0, gap=-1.0)

    def needs_reply_tokens(self) -> int:
        return self.limit - self.buffer + 1
