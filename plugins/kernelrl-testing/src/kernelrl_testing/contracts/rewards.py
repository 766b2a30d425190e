"""The contract of reward components."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

from kernelrl_core.types import Outcome, Turn
from kernelrl_testing.contracts.base import ComponentContract, require_unchanged
from kernelrl_testing.contracts.breaches import calling, require
from kernelrl_testing.values import generated_turns, make_turn, turns_of_every_outcome

__all__ = ["RewardContract"]

_ROUNDING = 1e-9
_FIX_SCORE = "return a finite number for turns of every outcome, also without candidate or evaluation"
_FIX_PURE = "compute the score from the turn alone: no counter, random number, clock or file"


class RewardContract(ComponentContract):
    """A reward component is a pure function from turns to finite numbers within its bounds."""

    kind = "rewards"
    sources: ClassVar[Sequence[str]] = ()
    """Further candidates, such as very long ones. Each is scored as rejected, incorrect and correct."""

    def turns(self) -> Sequence[Turn]:
        """The turns that are scored. Add those on which the component's formula depends."""
        outcomes = (Outcome.REJECTED, Outcome.INCORRECT, Outcome.CORRECT)
        given = (make_turn(outcome, source=source) for source in self.sources for outcome in outcomes)
        return (*turns_of_every_outcome(), *generated_turns(), *given)

    def test_scores_are_finite_and_within_bounds(self) -> None:
        bounds = self.use().options.bounds()
        rounding = _ROUNDING * max(abs(bounds.low), abs(bounds.high))
        for turn, score in self._scored(self.make()):
            what = f"the score of a turn {_described(turn)} is {score!r}"
            number = isinstance(score, Real) and math.isfinite(score)
            require(number, f"{what}, not a finite number", _FIX_SCORE)
            inside = bounds.low - rounding <= score <= bounds.high + rounding
            outside = f"{what}, outside of bounds() from {bounds.low:g} to {bounds.high:g}"
            require(inside, outside, "limit the score, or correct low and high in bounds() of the options")

    def test_scores_are_repeatable(self) -> None:
        reward = self.make()
        first = [score for _, score in self._scored(reward)]
        backwards = [score for _, score in self._scored(reward, reverse=True)][::-1]
        other = [score for _, score in self._scored(self.make())]
        equal = all(map(_same, first, backwards)) and all(map(_same, first, other))
        require(equal, "the score of a turn differs between two calls", _FIX_PURE)

    def test_turns_are_not_changed(self) -> None:
        require_unchanged(self.turns(), self.make().score, "score")

    def test_correct_kernels_rise_by_the_declared_gap(self) -> None:
        gap = self.use().options.bounds().gap
        scored = self._scored(self.make())
        if not all(isinstance(score, Real) for _, score in scored):
            return  # reported by the test of the bounds
        right, lowest = min((score, _described(turn)) for turn, score in scored if turn.correct)
        wrong, highest = max((score, _described(turn)) for turn, score in scored if not turn.correct)
        message = (
            f"a turn {lowest} scores {right:g} and a turn {highest} {wrong:g}: less than gap {gap:g} of bounds() apart"
        )
        require(right - wrong >= gap - _ROUNDING, message, "lower gap in bounds() of the options to the true one")

    def test_a_score_that_needs_times_declares_it(self) -> None:
        scored = self._scored(self.make())
        timed = {score for turn, score in scored if turn.speedup is not None}
        untimed = {score for turn, score in scored if turn.speedup is None}
        is_constant_without_times = len(untimed) == 1 and len(timed | untimed) > 1
        require(
            self.use().options.needs_timing() or not is_constant_without_times,
            "turns without run times have one score, those with run times several",
            "return True from needs_timing() of the options: a recipe that measures no times is then refused",
        )

    def _scored(self, reward: Any, *, reverse: bool = False) -> list[tuple[Turn, Any]]:
        turns = self.turns()[::-1] if reverse else self.turns()
        scored = []
        for turn in turns:
            with calling(f"score of a turn {_described(turn)}", _FIX_SCORE):
                scored.append((turn, reward.score(turn)))
        return scored


def _described(turn: Turn) -> str:
    facts: Mapping[str, object] = {
        "speedup": turn.speedup,
        "source characters": len(turn.candidate.source) if turn.candidate is not None else None,
    }
    shown = [f"{name} {value:g}" for name, value in facts.items() if isinstance(value, int | float)]
    return f"{turn.outcome.value} ({', '.join(shown)})" if shown else turn.outcome.value


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))
