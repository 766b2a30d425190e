"""The contract of advantages."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

from kernelrl_testing.contracts.base import ComponentContract
from kernelrl_testing.contracts.breaches import calling, require

__all__ = ["AdvantageContract"]

Returns: TypeAlias = Sequence[Sequence[float]]

_ROUNDING = 1e-9
_FIX_SHAPE = "return one finite number per turn: a list per episode, of the length of its returns"


class AdvantageContract(ComponentContract):
    """An advantage is a pure function that returns finite numbers in the shape of its returns."""

    kind = "advantages"
    worked: ClassVar[Sequence[tuple[Returns, Returns]]] = ()
    """Returns of a group, and its advantages worked by hand."""

    def groups(self) -> Sequence[list[list[float]]]:
        """The returns of the groups that are tried: `[episode][turn]`, ragged."""
        return (
            [[1.0], [0.0], [0.5], [0.0]],
            [[1.0, 2.0], [0.0], [1.0, 0.0, 3.0]],
            [[-1e6], [1e6]],
            [[1e-12], [0.0]],
            [[0.3]],
        )

    def test_shape_is_that_of_the_returns(self) -> None:
        estimate = self.make()
        for group in self.groups():
            made = _advantages(estimate, group)
            same = isinstance(made, list | tuple) and [_length(episode) for episode in made] == list(map(len, group))
            require(same, f"the returns {group} give {made!r}", _FIX_SHAPE)
            numbers = [value for episode in made for value in episode]
            finite = all(isinstance(value, int | float) and math.isfinite(value) for value in numbers)
            require(finite, f"the returns {group} give {made!r}", _FIX_SHAPE)

    def test_equal_returns_give_zero(self) -> None:
        estimate = self.make()
        for group in ([[0.3], [0.3], [0.3]], [[1.0, 1.0], [1.0, 1.0]], [[0.0]] * 7, [[0.7], [0.7, 0.7]]):
            made = _advantages(estimate, group)
            zero = all(value == 0.0 for episode in made for value in episode)
            fix = "return exactly 0 where the returns of the group are equal, before any division"
            require(zero, f"the equal returns {group} give {made!r}", fix)

    def test_better_episodes_have_greater_advantages(self) -> None:
        estimate = self.make()
        for group in ([[0.0], [1.0], [0.25], [0.5]], [[-3.0], [2.0]], [[1.0], [1.0], [0.0]]):
            made = [value for (value,) in _advantages(estimate, group)]
            ranked = [value for _, value in sorted(zip(group, made, strict=True), key=lambda pair: pair[0])]
            rises = all(one <= other + _ROUNDING for one, other in pairwise(ranked))
            fix = "subtract the baseline from the return, not the return from the baseline"
            require(rises and ranked[0] < ranked[-1], f"the returns {group} give {made!r}", fix)

    def test_numbers_worked_by_hand(self) -> None:
        estimate = self.make()
        for group, expected in self.worked:
            made = _advantages(estimate, copy.deepcopy(group))
            pairs = [pair for one, other in zip(made, expected, strict=True) for pair in zip(one, other, strict=True)]
            equal = all(math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) for one, other in pairs)
            require(equal, f"the returns {group} give {made!r}, by hand {expected}", "correct the formula")

    def test_is_pure(self) -> None:
        estimate = self.make()
        groups = self.groups()
        before = copy.deepcopy(groups)
        first = [_advantages(estimate, group) for group in groups]
        require(groups == before, "the returns are changed", "build new lists")
        again = [_advantages(estimate, group) for group in reversed(groups)][::-1]
        require(again == first, "equal returns give different advantages", "keep no state between two calls")


def _advantages(estimate: Any, group: Any) -> Any:
    with calling(f"the advantage of the returns {group}", _FIX_SHAPE):
        return estimate(group)


def _length(episode: Any) -> int:
    return len(episode) if isinstance(episode, list | tuple) else -1
