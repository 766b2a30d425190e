"""Options of the reward components, and what core must know of each before a run.

`RewardBounds.gap` is the least a component can rise from a kernel that is not correct to one that is. Components that
look at the verdict never fall there; those that look at the text alone can, by as much as two texts with code differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import attrs

from kernelrl_core.kinds import RewardBounds
from kernelrl_core.recipe.schema import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

__all__ = [
    "CompileConfig",
    "CorrectnessConfig",
    "FormatConfig",
    "LengthConfig",
    "SpeedupConfig",
    "ThinkingConfig",
]


@attrs.frozen
class FormatConfig:
    """Options of `format`."""

    penalty: float = 0.0
    """Score of a reply without usable code; 0 or below."""

    def problems(self) -> Iterable[str]:
        if self.penalty > 0:
            yield f"penalty must be 0 or below, not {self.penalty:g}: a reply without code must not earn anything"

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=self.penalty, high=1.0, gap=0.0)

    def needs_timing(self) -> bool:
        return False


@attrs.frozen
class CompileConfig:
    """Options of `compile`: none."""

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=0.0, high=1.0, gap=0.0)

    def needs_timing(self) -> bool:
        return False


@attrs.frozen
class CorrectnessConfig:
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

    def needs_timing(self) -> bool:
        return False


@attrs.frozen
class SpeedupConfig:
    """Options of `speedup`."""

    curve: Literal["linear", "log2"] = "linear"
    """`linear`: scale * (speedup - baseline); `log2`: scale * log2(speedup / baseline). Both from 0 to `cap`."""
    baseline: NonNegativeFloat | None = None
    """Speedup up to which nothing is earned; null takes 0 for `linear` and 1 for `log2`."""
    scale: PositiveFloat = PositiveFloat(1.0)
    """Factor before the cap."""
    cap: PositiveFloat = PositiveFloat(10.0)
    """Highest score."""

    def problems(self) -> Iterable[str]:
        if self.curve == "log2" and self.baseline == 0:
            yield "curve 'log2' needs a baseline above 0, such as 1"

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=0.0, high=self.cap, gap=0.0)

    def needs_timing(self) -> bool:
        return True


@attrs.frozen
class ThinkingConfig:
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

    def needs_timing(self) -> bool:
        return False


@attrs.frozen
class LengthConfig:
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

    def needs_timing(self) -> bool:
        return False
