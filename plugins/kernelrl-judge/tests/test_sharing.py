"""What outputs keep from being given back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernelrl_judge.computing import computing  # noqa: E402
from kernelrl_judge.effects import workspace_returned  # noqa: E402
from kernelrl_judge.operators import called  # noqa: E402
from kernelrl_judge.sharing import held_bytes  # noqa: E402


def test_outputs_hold_whole_blocks_each_once_and_none_that_is_there_all_the_same() -> None:
    work, given = torch.empty(100, 8), torch.empty(50, 8)
    assert held_bytes([work[0], work[1], torch.empty(2)], [given]) == 100 * 8 * 4 + 2 * 4
    assert held_bytes([given[0]], [given]) == 0


@pytest.mark.parametrize(
    ("held", "of_reference", "expected"),
    [
        (516 << 10, 4 << 10, ["workspace_returned"]),
        # Little, in whole blocks, and what the reference holds as well.
        (100 << 10, 4 << 10, []),
        (8 << 20, 1 << 20, []),
        (516 << 10, 516 << 10, []),
    ],
)
def test_a_view_of_a_large_workspace_is_suspect(held: int, of_reference: int, expected: list[str]) -> None:
    reference: Any = SimpleNamespace(facts={"held_bytes": of_reference})
    found = workspace_returned(held, torch.empty(1024), reference)
    assert [finding.rule for finding in found] == expected


def test_to_look_at_memory_is_no_operator() -> None:
    assert computing(called(lambda: held_bytes(torch.empty(100), []))[1], ([], torch.empty(100))) == []
