from __future__ import annotations

from typing import Any

from broken_components import Broken


def _centred(group: Any) -> list[list[float]]:
    values = [value for episode in group for value in episode]
    if len(set(values)) == 1:
        return [[0.0] * len(episode) for episode in group]
    return [[value - sum(values) / len(values) for value in episode] for episode in group]


def centred() -> Any:
    return _centred


def flat() -> Any:
    return lambda group: [[value for episode in _centred(group) for value in episode]]


def raw() -> Any:
    return lambda group: [list(episode) for episode in group]


def wrong_sign() -> Any:
    return lambda group: [[0.0 - value for value in episode] for episode in _centred(group)]


def in_place() -> Any:
    def estimate(group: Any) -> Any:
        for episode, centred in zip(group, _centred(group), strict=True):
            episode[:] = centred
        return group

    return estimate


def single_turns() -> Any:
    """Fails for episodes of several turns."""
    return lambda group: _centred([[value] for (value,) in group])


WORKED = [([[1.0], [0.0]], [[0.5], [-0.5]]), ([[1.0, 2.0], [0.0]], [[0.0, 1.0], [-1.0]])]
WRONG = [([[1.0], [0.0]], [[1.0], [-1.0]])]
BROKEN = [
    Broken("advantages", "advantages.centred", (), attributes={"worked": WORKED}),
    Broken("advantages", "advantages.centred", ["numbers_worked_by_hand"], attributes={"worked": WRONG}),
    Broken(
        "advantages",
        "advantages.flat",
        ["shape_is_that_of_the_returns", "better_episodes_have_greater_advantages"],
    ),
    Broken("advantages", "advantages.raw", ["equal_returns_give_zero"]),
    Broken("advantages", "advantages.wrong_sign", ["better_episodes_have_greater_advantages"]),
    Broken("advantages", "advantages.in_place", ["is_pure"]),
    Broken(
        "advantages",
        "advantages.single_turns",
        ["shape_is_that_of_the_returns", "equal_returns_give_zero", "is_pure"],
    ),
]
