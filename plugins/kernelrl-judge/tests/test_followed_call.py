"""The line of a candidate that a capture cannot contain, where no exception names it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernelrl_judge.runner.followed_call import FollowedCall  # noqa: E402

SOURCE = """\
def launch(add):
    add(1)
    return add(1)

def forward(add):
    y = launch(add)
    add(1)
    return launch(add) and add(1)
"""


def followed(invalid_from: int | None = None) -> FollowedCall:
    """A call that adds nodes 0 to 6; the capture is invalid from a node on."""
    n_nodes = 0
    names: dict[str, Any] = {}
    exec(compile(SOURCE, "candidate.py", "exec"), names)

    def add(count: int) -> int:
        nonlocal n_nodes
        n_nodes += count
        return n_nodes

    def captured() -> int | None:
        return n_nodes if invalid_from is None or n_nodes <= invalid_from else None

    call = FollowedCall(names["forward"], "candidate.py", captured)
    call(add)
    return call


def test_a_node_has_the_line_that_added_it() -> None:
    assert [followed().line_of_node(node) for node in range(7)] == [2, 3, 7, 2, 3, 8, 0]


@pytest.mark.parametrize(("node", "line"), [(0, 2), (2, 7), (5, 8)])
def test_an_invalid_capture_has_the_line_that_made_it_invalid(node: int, line: int) -> None:
    assert followed(invalid_from=node).line_of_error() == line


def test_a_capture_that_stays_valid_has_no_line() -> None:
    assert followed().line_of_error() == 0
