"""Options of the reward components, and what core must know of each before a run.

`RewardBounds.gap` is the least a component can rise from a kernel that is not correct to one that is. Components that
look at the verdict never fall there; those that look at the text alone can, by as much as two texts with code differ.
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
            yield f"penalty must be 0 or below, not {self.penalty:g}: a reply without code must not earn anything"

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
    """`all`: only a correct kernel earns something; `partial`: a wrong one earns by the share of tests it passed."""
    partial_share: Fraction = Fraction(0.5)
    """Mode `partial`: what a wrong kernel would earn if it passed every test; below 1, so that right beats wrong."""

    def problems(self) -> Iterable[str]:
        if self.partial_share >= 1:
            yield f"partial_share must be below 1, not {self.partial_share:g}: wrong must earn less than right"

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=0.0, high=1.0, gap=1.0 - (self.partial_share if self.mode == "partial" else 0.0))


@attrs.frozen
class SpeedupConfig(RewardConfig):
    """Options of `speedup`."""

    curve: Literal["linear", "log2"] = "linear"
    """`linear`: scale * (speedup - baseline); `log2`: scale * log2(speedup / baseline). Both from 0 to `cap`."""
    baseline: NonNegativeFloat | None = None
    """Speedup up to which nothing is earned; null takes 0 for `linear` and 1 for `log2`."""
    scale: PositiveFloat = PositiveFloat(1.0)
    """Factor before the cap."""
    cap: PositiveFloat | None = PositiveFloat(10.0)
    """Highest score; null: none."""

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
    """Score of one that is faster than `torch.compile` by as much, too."""
    margin: Fraction = Fraction(0.05)
    """Share by which a kernel must be faster: 0.05 asks for a speedup above 1.05."""

    def problems(self) -> Iterable[str]:
        ladder = (self.failed, self.correct, self.faster_than_eager, self.faster_than_both)
        if list(ladder) != sorted(ladder) or self.failed == self.correct:
            yield "the scores must rise: failed < correct <= faster_than_eager <= faster_than_both"

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=self.failed, high=self.faster_than_both, gap=self.correct - self.failed)

    def needs_timing(self) -> bool:
        return True

    def needs_settings(self) -> dict[str, object]:
        """Speedups over `torch.compile` and over eager PyTorch are both known when the former is the baseline."""
        return {"baseline": "compile"}


@attrs.frozen
class CoverageConfig(RewardConfig):
    """Options of `coverage`: none."""

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=0.0, high=1.0, gap=0.0)

    def needs_timing(self) -> bool:
        return True

    def needs_settings(self) -> dict[str, object]:
        """The share is read off a profile."""
        return {"profile_kernels": True}


@attrs.frozen
class CudaL1Config(RewardConfig):
    """Options of `cuda_l1`."""

    digits: NonNegativeInt = NonNegativeInt(2)
    """Decimals that are kept of a speedup; the others are cut off towards 1."""
    max_spread: PositiveFloat = PositiveFloat(0.1)
    """Width of the 95 % interval over the speedup, above which a measurement counts as too noisy to show a gain."""
    cap: PositiveFloat | None = None
    """Highest score; null: none."""

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
    """From `full` to this length the score falls linearly to `beyond`."""
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
    """Sources of this length or more score 0; in between the score is linear."""

    def problems(self) -> Iterable[str]:
        if self.none <= self.full:
            yield f"none ({self.none}) must be above full ({self.full})"

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=0.0, high=1.0, gap=-1.0)
