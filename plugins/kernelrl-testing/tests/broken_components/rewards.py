from __future__ import annotations

import math
from typing import Any

import attrs

from broken_components import UNMADE, Broken
from kernelrl_core.api.rewards import Outcome, Reward, RewardBounds, RewardConfig, Turn


@attrs.frozen
class Bounds(RewardConfig):
    low: float = 0.0
    high: float = 1.0
    gap: float = 1.0

    def bounds(self) -> RewardBounds:
        return RewardBounds(self.low, self.high, self.gap)


@attrs.frozen
class Timed(Bounds):
    def needs_timing(self) -> bool:
        return True


@attrs.frozen
class Misspelt(Bounds):
    def need_timing(self) -> bool:
        return True


@attrs.frozen
class NoSetting(Bounds):
    def needs_settings(self) -> dict[str, Any]:
        return {"profile_kernel": True}


@attrs.frozen
class NoBounds(RewardConfig):
    pass


@attrs.frozen
class Changing(Bounds):
    level: int = attrs.field(default=1, converter=lambda value: value + 1)


@attrs.frozen
class AnyOption(Bounds):
    """Takes every key."""

    no_such_option: int = 0


@attrs.frozen
class NoRequires(Bounds):
    def requires(self) -> Any:
        return ["torch"]


class Correct(Reward):
    def __init__(self, options: RewardConfig) -> None:
        self.scored = 0

    def score(self, turn: Turn) -> float:
        return float(turn.correct)


class TooHigh(Correct):
    def score(self, turn: Turn) -> float:
        return 2.0 * turn.correct


class NotFinite(Correct):
    def score(self, turn: Turn) -> float:
        return math.inf if turn.correct else 0.0


class Text(Correct):
    def score(self, turn: Turn) -> Any:
        return str(super().score(turn))


class OnlyMeasured(Correct):
    def score(self, turn: Turn) -> float:
        return min(1.0, turn.evaluation.speedup) if turn.correct else 0.0  # type: ignore[union-attr, type-var, return-value]


class Counts(Correct):
    def score(self, turn: Turn) -> float:
        self.scored += 1
        return 1.0 if turn.correct else -self.scored / 1e6


class Changes(Correct):
    def score(self, turn: Turn) -> float:
        turn.seconds.update(score=1.0)  # type: ignore[attr-defined]
        return float(turn.correct)


class Marked(Correct):
    def score(self, turn: Turn) -> float:
        marked = turn.candidate is not None and turn.candidate.source == "# marked"
        return 2.0 if marked and turn.correct else float(turn.correct)


class Fast(Correct):
    """A slow correct kernel scores less than the declared gap."""

    def score(self, turn: Turn) -> float:
        return min(1.0, turn.speedup or 0.0)


class OfTimeouts(Correct):
    def score(self, turn: Turn) -> float:
        return 1.5 if turn.outcome is Outcome.TIMEOUT else float(turn.correct)


BOUNDS = "scores_are_finite_and_within_bounds"
TIMES = "a_score_that_needs_times_declares_it"
GAP = "correct_kernels_rise_by_the_declared_gap"
ROUND_TRIP = "options_round_trip_and_unknown_ones_are_refused"


def _reward(target: str, *fails: str, config: str = "Bounds", **attributes: Any) -> Broken:
    return Broken("rewards", f"rewards.{target}", fails, f"rewards.{config}", attributes)


BROKEN = [
    _reward("Correct"),
    _reward("Correct", sources=("# marked",)),
    _reward("TooHigh", BOUNDS),
    _reward("NotFinite", BOUNDS),
    _reward("Text", BOUNDS),
    _reward("OnlyMeasured", BOUNDS, "scores_are_repeatable", GAP, TIMES),
    _reward("OfTimeouts", BOUNDS, GAP),
    _reward("Counts", "scores_are_repeatable", options={"low": -1.0}),
    _reward("Changes", "turns_are_not_changed"),
    _reward("Marked"),
    _reward("Marked", BOUNDS, sources=("# marked",)),
    _reward("Fast", GAP, TIMES, options={"gap": 0.5}),
    _reward("Fast", options={"gap": 0.0}, config="Timed"),
    _reward("Correct", GAP, options={"high": 2.0, "gap": 1.5}),
    _reward("Correct", *UNMADE, options={"high": -1.0}),
    _reward("Correct", *UNMADE, options={"high": 1.5, "gap": 2.0}),
    _reward("Correct", *UNMADE, config="NoBounds"),
    # The contract of all kinds.
    _reward("Missing", "is_found_and_loads", *UNMADE),
    _reward("Correct", "is_found_and_loads", config="Misspelt"),
    _reward("Correct", *UNMADE, config="NoSetting"),
    _reward("Correct", ROUND_TRIP, config="Changing"),
    _reward("Correct", ROUND_TRIP, config="AnyOption"),
    _reward("Correct", "requires_names_all_imports", config="NoRequires"),
]
