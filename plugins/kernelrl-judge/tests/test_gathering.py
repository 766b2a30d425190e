"""What a reference reads of its inputs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stress_tasks import reference  # noqa: E402

from kernelrl_judge.gathering import as_read  # noqa: E402

INPUTS = "torch.randn(1000, 16), torch.randint(0, 1000, (8, 4))"


@pytest.mark.parametrize(
    ("forward", "elements"),
    [
        ("return table[ids].sum(1)", 8 * 4 * 16),
        ("return torch.nn.functional.embedding(ids, table)", 8 * 4 * 16),
        ("return table.index_select(0, ids.flatten()) + table[0]", (8 * 4 + 1) * 16),
        # All of it is read as well.
        ("return table[ids] + table.amax()", 1000 * 16),
        ("return table * 2", 1000 * 16),
    ],
)
def test_of_a_table_counts_what_is_gathered_alone(forward: str, elements: int) -> None:
    task = reference(forward, INPUTS, names="table, ids")
    table, ids = as_read(task, task.inputs(1))
    assert (table.numel(), ids.numel()) == (elements, 32)
